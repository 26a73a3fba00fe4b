#include "descriptors.h"

#include "flash.h"

#define LE16(word) LOW(word), HIGH(word)

enum { DEVICE = 1, CONFIGURATION = 2, STRING = 3, INTERFACE = 4, ENDPOINT = 5, QUALIFIER = 6 };
enum { OTHER_SPEED = 7, STORE = 15, CAPABILITY = 16, COMPANION = 48 };
enum { MANUFACTURER = 1, PRODUCT = 2, SERIAL = 3 };
enum { VENDOR_ID_AT = 8 };

/* The chip's own identity, 174C:2464, which a good configuration block 0 replaces. */
#define DEVICE_DESCRIPTOR(usb, ep0_size) \
    18, DEVICE, LE16(usb), 0, 0, 0, ep0_size, 0x4C, 0x17, 0x64, 0x24, 0, 0, MANUFACTURER, PRODUCT, SERIAL, 1
/* Self-powered; mass storage, SCSI, bulk-only. */
#define CONFIGURATION_DESCRIPTOR(size, type) \
    9, type, LE16(size), 1, 1, 0, 0xC0, 0, 9, INTERFACE, 0, 0, 2, 0x08, 0x06, 0x50, 0
#define BULK(address, packet) 7, ENDPOINT, address, 2, LE16(packet), 0
#define COMPANION_DESCRIPTOR 6, COMPANION, 15, 0, 0, 0

static const __code u8 device_super[] = {DEVICE_DESCRIPTOR(0x0320u, 9)};
static const __code u8 device_high[] = {DEVICE_DESCRIPTOR(0x0210u, 64)};
static const __code u8 configuration_super[] = {
    CONFIGURATION_DESCRIPTOR(44u, CONFIGURATION), BULK(0x81, 1024u), COMPANION_DESCRIPTOR,
    BULK(0x02, 1024u), COMPANION_DESCRIPTOR,
};
static const __code u8 configuration_high[] = {
    CONFIGURATION_DESCRIPTOR(32u, CONFIGURATION), BULK(0x81, 512u), BULK(0x02, 512u),
};
static const __code u8 other_speed[] = {
    CONFIGURATION_DESCRIPTOR(32u, OTHER_SPEED), BULK(0x81, 64u), BULK(0x02, 64u),
};
static const __code u8 qualifier[] = {10, QUALIFIER, LE16(0x0210u), 0, 0, 0, 64, 1, 0};
/* LPM; from Full Speed to 5 Gb/s, U1 in 10 us, U2 in 2047 us; one symmetric sublink of 10 Gb/s. */
static const __code u8 store[] = {
    5, STORE, 42, 0, 3,
    7, CAPABILITY, 2, 0x02, 0, 0, 0,
    10, CAPABILITY, 3, 0, LE16(0x000Eu), 1, 10, LE16(2047u),
    20, CAPABILITY, 10, 0, 1, 0, 0, 0, LE16(0x1100u), 0, 0, 0x30, 0x40, 0x0A, 0, 0xB0, 0x40, 0x0A, 0,
};
static const __code u8 languages[] = {4, STRING, 0x09, 0x04};
static const __code char manufacturer[] = "towline";
static const __code char product[] = "towline maker's style";
static const __code char serial[] = "000000000002"; /* 12 hexadecimal digits at least, as the class wants */

static u8 copy(const __code u8 *from, u8 length)
{
    volatile __xdata u8 *to = EP0_BUFFER;
    u8 left;

    for (left = length; left; left--)
        *to++ = *from++;
    return length;
}

static u8 copy_text(const __code char *from)
{
    volatile __xdata u8 *to = EP0_BUFFER + 2;
    u8 length = 2;

    for (; *from; length += 2) {
        *to++ = *from++;
        *to++ = 0;
    }
    EP0_BUFFER[0] = length;
    EP0_BUFFER[1] = STRING;
    return length;
}

static u8 copy_device(void)
{
    u8 length;
    u8 i;

    length = IS_HIGH_SPEED ? copy(device_high, sizeof device_high)
                           : copy(device_super, sizeof device_super);
    if (flash_has_identity)
        for (i = 0; i < IDENTITY_SIZE; i++)
            EP0_BUFFER[VENDOR_ID_AT + i] = flash_identity[i];
    return length;
}

static u8 copy_string(u8 index)
{
    switch (index) {
    case 0:
        return copy(languages, sizeof languages);
    case MANUFACTURER:
        return copy_text(manufacturer);
    case PRODUCT:
        return copy_text(product);
    case SERIAL:
        return copy_text(serial);
    }
    return 0;
}

u8 descriptor_copy(u8 type, u8 index)
{
    if (type == STRING)
        return copy_string(index);
    if (index != 0)
        return 0;
    switch (type) {
    case DEVICE:
        return copy_device();
    case CONFIGURATION:
        return IS_HIGH_SPEED ? copy(configuration_high, sizeof configuration_high)
                             : copy(configuration_super, sizeof configuration_super);
    case QUALIFIER:
        return IS_HIGH_SPEED ? copy(qualifier, sizeof qualifier) : 0;
    case OTHER_SPEED:
        return IS_HIGH_SPEED ? copy(other_speed, sizeof other_speed) : 0;
    case STORE:
        return copy(store, sizeof store);
    }
    return 0;
}
