#include "descriptors.h"

#include "control.h"
#include "serial.h"
#include "table.h"
#include "usb.h"

#define LE16(word) LOW(word), HIGH(word)
#define LE32(dword) LE16((u16)(dword)), LE16((u16)((dword) >> 16))

#define VENDOR_ID 0xADD1u
#define PRODUCT_ID 0x0001u
#define RELEASE_NUMBER API_LEVEL

enum {
    TYPE_DEVICE = 1,
    TYPE_CONFIGURATION = 2,
    TYPE_STRING = 3,
    TYPE_INTERFACE = 4,
    TYPE_ENDPOINT = 5,
    TYPE_QUALIFIER = 6,
    TYPE_OTHER_SPEED = 7,
    TYPE_BOS = 15,
    TYPE_CAPABILITY = 16,
    TYPE_COMPANION = 48,
};
enum { CAPABILITY_USB2_EXTENSION = 2, CAPABILITY_SUPERSPEED = 3, CAPABILITY_SUPERSPEED_PLUS = 10 };
enum { MANUFACTURER = 1, PRODUCT = 2, SERIAL_NUMBER = 3 };

/* Links on which a descriptor exists. */
enum { SUPER = 1, HIGH_SPEED = 2, FULL = 4, USB2 = HIGH_SPEED | FULL, ALWAYS = SUPER | USB2 };

/* Vendor-specific class, one configuration. The size of EP0 at SuperSpeed is an exponent of 2. */
#define DEVICE_SIZE 18
#define DEVICE_DESCRIPTOR(usb, ep0_size)                                                              \
    DEVICE_SIZE, TYPE_DEVICE, LE16(usb), 0, 0, 0, ep0_size, LE16(VENDOR_ID), LE16(PRODUCT_ID),        \
        LE16(RELEASE_NUMBER), MANUFACTURER, PRODUCT, SERIAL_NUMBER, 1
/* Self-powered; one interface of the vendor's class, two bulk endpoints. */
#define CONFIGURATION(size) 9, TYPE_CONFIGURATION, LE16(size), 1, 1, 0, 0xC0, 0
#define INTERFACE_OF_TWO 9, TYPE_INTERFACE, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0
#define BULK(address, packet) 7, TYPE_ENDPOINT, address, 2, LE16(packet), 0
#define COMPANION 6, TYPE_COMPANION, 15, 0, 0, 0 /* bursts of 16, as the published firmware has (trace) */
#define SUPER_SIZE 44
#define SUPER_CONFIGURATION                                                                           \
    CONFIGURATION((u16)SUPER_SIZE), INTERFACE_OF_TWO, BULK(0x81, 1024u), COMPANION, BULK(0x02, 1024u), \
        COMPANION
#define USB2_SIZE 32
#define USB2_CONFIGURATION(packet) \
    CONFIGURATION((u16)USB2_SIZE), INTERFACE_OF_TWO, BULK(0x81, packet), BULK(0x02, packet)
/* High speed and full speed differ only in the packet size of the bulk endpoints. */
#define QUALIFIER_SIZE 10
#define QUALIFIER QUALIFIER_SIZE, TYPE_QUALIFIER, LE16(0x0210u), 0, 0, 0, 64, 1, 0

#define USB2_EXTENSION 7, TYPE_CAPABILITY, CAPABILITY_USB2_EXTENSION, LE32(0x00000002ul) /* LPM */
/* Full speed, high speed, 5 Gb/s; fully functional from full speed on; U1 in 10 us, U2 in 2047 us. */
#define SUPERSPEED 10, TYPE_CAPABILITY, CAPABILITY_SUPERSPEED, 0, LE16(0x000Eu), 1, 10, LE16(2047u)
/* One sublink speed, 0: symmetric, SuperSpeedPlus, 10 Gb/s; first to receive, then to transmit. One lane. */
#define SUPERSPEED_PLUS                                                                               \
    20, TYPE_CAPABILITY, CAPABILITY_SUPERSPEED_PLUS, 0, LE32(0x00000001ul), LE16(0x1100u), LE16(0u),  \
        LE32(0x000A4030ul), LE32(0x000A40B0ul)
#define BOS_SIZE (5 + 7 + 10 + 20)
#define BOS 5, TYPE_BOS, LE16((u16)BOS_SIZE), 3, USB2_EXTENSION, SUPERSPEED, SUPERSPEED_PLUS

/* Strings are UTF-16LE. */
#define W(character) character, 0
#define LANGUAGES 4, TYPE_STRING, LE16(0x0409u)
#define TOWLINE W('t'), W('o'), W('w'), W('l'), W('i'), W('n'), W('e')
#define MANUFACTURER_SIZE (2 + 2 * 7)
#define PRODUCT_SIZE (2 + 2 * 14)
#define SERIAL_SIZE (2 + 4 * SERIAL_BYTES)

/* An entry: type, index, links, size, and the descriptor itself. */
static const __code u8 descriptors[] = {
    TYPE_DEVICE, 0, SUPER, DEVICE_SIZE, DEVICE_DESCRIPTOR(0x0320u, 9),
    TYPE_DEVICE, 0, USB2, DEVICE_SIZE, DEVICE_DESCRIPTOR(0x0210u, 64),
    TYPE_CONFIGURATION, 0, SUPER, SUPER_SIZE, SUPER_CONFIGURATION,
    TYPE_CONFIGURATION, 0, HIGH_SPEED, USB2_SIZE, USB2_CONFIGURATION(512u),
    TYPE_CONFIGURATION, 0, FULL, USB2_SIZE, USB2_CONFIGURATION(64u),
    TYPE_QUALIFIER, 0, USB2, QUALIFIER_SIZE, QUALIFIER,
    TYPE_BOS, 0, ALWAYS, BOS_SIZE, BOS,
    TYPE_STRING, 0, ALWAYS, 4, LANGUAGES,
    TYPE_STRING, MANUFACTURER, ALWAYS, MANUFACTURER_SIZE, MANUFACTURER_SIZE, TYPE_STRING, TOWLINE,
    TYPE_STRING, PRODUCT, ALWAYS, PRODUCT_SIZE, PRODUCT_SIZE, TYPE_STRING,
    W('c'), W('u'), W('s'), W('t'), W('o'), W('m'), W(' '), TOWLINE,
    0,
};

/* Offset of the next byte in EP0_BUFFER. */
static u8 place;

#pragma callee_saves put
static void put(u8 byte)
{
    EP0_BUFFER[place++] = byte;
}

/* Put the lower half of a byte as a hexadecimal digit of a string. */
static void put_digit(u8 byte)
{
    byte &= 0x0F;
    put(byte < 10 ? '0' + byte : 'a' - 10 + byte);
    put(0);
}

static void put_serial(void)
{
    u8 i;

    put(SERIAL_SIZE);
    put(TYPE_STRING);
    for (i = 0; i < SERIAL_BYTES; i++) {
        put_digit(serial[i] >> 4);
        put_digit(serial[i]);
    }
}

static void put_entry(u8 type, u8 index, u8 link)
{
    u8 found, size;

    for (table = descriptors; (found = table_next()) != 0; table += size) {
        found ^= type;
        found |= table_next() ^ index;
        if (!(table_next() & link))
            found = 1;
        size = table_next();
        if (!found) {
            for (; size; size--)
                put(table_next());
            return;
        }
    }
}

/* The entry of a USB 2.0 configuration also serves as that of the other speed, under the other type. */
u8 descriptor_copy(u8 type, u8 index)
{
    u8 link = SUPER;

    if (usb_high_speed) {
        link = HIGH_SPEED;
        if (usb_is_full_speed())
            link = FULL;
    }
    place = 0;
    if (type == TYPE_STRING && index == SERIAL_NUMBER) {
        put_serial();
    } else if (type == TYPE_OTHER_SPEED && link != SUPER) {
        put_entry(TYPE_CONFIGURATION, index, link ^ USB2);
        EP0_BUFFER[1] = TYPE_OTHER_SPEED;
    } else {
        put_entry(type, index, link);
    }
    return place;
}
