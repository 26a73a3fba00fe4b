#include "descriptors.h"

#include "control.h"
#include "usb.h"

#define LE16(word) LOW(word), HIGH(word)

#define VENDOR_ID 0xADD1
#define PRODUCT_ID 0x0001
#define RELEASE 0x0001

enum { TYPE_DEVICE = 1, TYPE_CONFIGURATION = 2, TYPE_STRING = 3, TYPE_QUALIFIER = 6, TYPE_BOS = 15 };

#define DEVICE_DESCRIPTOR(usb, ep0_size) \
    18, TYPE_DEVICE, LE16(usb), 0, 0, 0, ep0_size, LE16(VENDOR_ID), LE16(PRODUCT_ID), LE16(RELEASE), 1, 2, 3, 1
/* One configuration, self-powered; one interface of the vendor's class. */
#define CONFIGURATION(length) 9, TYPE_CONFIGURATION, LE16(length), 1, 1, 0, 0xC0, 0
#define INTERFACE_OF_TWO 9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0
#define BULK(address, size) 7, 5, address, 2, LE16(size), 0
#define COMPANION 6, 48, 0, 0, 0, 0

/* The size of EP0 at SuperSpeed is an exponent of 2. */
static const __code u8 device_ss[] = {DEVICE_DESCRIPTOR(0x0320, 9)};
static const __code u8 device_hs[] = {DEVICE_DESCRIPTOR(0x0210, 64)};
static const __code u8 configuration_ss[] = {
    CONFIGURATION(44), INTERFACE_OF_TWO, BULK(0x81, 1024), COMPANION, BULK(0x02, 1024), COMPANION,
};
static const __code u8 configuration_hs[] = {
    CONFIGURATION(32), INTERFACE_OF_TWO, BULK(0x81, 512), BULK(0x02, 512),
};
/* At full speed there is no configuration. */
static const __code u8 qualifier[] = {10, TYPE_QUALIFIER, LE16(0x0200), 0, 0, 0, 64, 0, 0};
/* LPM; then: high speed and SuperSpeed, works from high speed on, exit latencies of U1 and U2. */
static const __code u8 bos[] = {
    5, TYPE_BOS, LE16(22), 2,
    7, 16, 2, 0x02, 0, 0, 0,
    10, 16, 3, 0, LE16(0x000C), 2, 10, LE16(0x07FF),
};

static const __code char *const __code strings[] = {"towline", "towline test vendor", "test-1"};
static const __code u8 languages[] = {4, TYPE_STRING, LE16(0x0409)};

static u8 copy(const __code u8 *from, u8 length)
{
    u8 i;

    for (i = 0; i < length; i++)
        EP0_BUFFER[i] = from[i];
    return length;
}

static u8 copy_string(const __code char *text)
{
    u8 length = 2;

    while (*text) {
        EP0_BUFFER[length++] = *text++;
        EP0_BUFFER[length++] = 0;
    }
    EP0_BUFFER[0] = length;
    EP0_BUFFER[1] = TYPE_STRING;
    return length;
}

u8 descriptor_copy(u8 type, u8 index)
{
    if (type == TYPE_STRING) {
        if (index == 0)
            return copy(languages, sizeof languages);
        return index <= sizeof strings / sizeof strings[0] ? copy_string(strings[index - 1]) : 0;
    }
    if (index)
        return 0;
    switch (type) {
    case TYPE_DEVICE:
        return usb_high_speed ? copy(device_hs, sizeof device_hs) : copy(device_ss, sizeof device_ss);
    case TYPE_CONFIGURATION:
        return usb_high_speed ? copy(configuration_hs, sizeof configuration_hs)
                              : copy(configuration_ss, sizeof configuration_ss);
    case TYPE_BOS:
        return copy(bos, sizeof bos);
    case TYPE_QUALIFIER:
        return usb_high_speed ? copy(qualifier, sizeof qualifier) : 0;
    }
    return 0;
}
