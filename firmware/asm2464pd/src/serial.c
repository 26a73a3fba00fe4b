#include "serial.h"

/* Bytes of address that are sent; the mode is 1 in every known use. */
enum { NO_ADDRESS = 1 << FLASH_ADDRESS_LENGTH_MODE_SHIFT, ADDRESS = NO_ADDRESS | SPI_ADDRESS_BYTES };
/* The smallest read of known flash tools; the page has 64 bytes. */
enum { READ_BYTES = 128 };
enum { DIVIDER = 4 };
#define POLLS 65535u

__xdata u8 serial[SERIAL_BYTES];

static void flash_start(void)
{
    SYS_CPU_STATUS = SYS_CPU_STATUS_INTERRUPT;
    FLASH_GATE |= FLASH_GATE_FLASH;
    FLASH_BUFFER = FLASH_BUFFER_PLACE_BULK_OUT;
    FLASH_DIVIDER = DIVIDER;
}

/* A transaction that reads from address 0. */
static void flash_read(u8 command, u8 address_length, u8 length)
{
    u16 polls = POLLS;

    FLASH_CONTROL = 0;
    FLASH_MODE = 0;
    FLASH_BUFFER_OFFSET_HIGH = 0;
    FLASH_BUFFER_OFFSET_LOW = 0;
    FLASH_ADDRESS_LOW = 0;
    FLASH_ADDRESS_MIDDLE = 0;
    FLASH_ADDRESS_HIGH = 0;
    FLASH_LENGTH_HIGH = 0;
    FLASH_LENGTH_LOW = length;
    FLASH_ADDRESS_LENGTH = address_length;
    FLASH_COMMAND = command;
    FLASH_CSR = FLASH_CSR_BUSY;
    while (FLASH_CSR & FLASH_CSR_BUSY && --polls)
        ;
}

/* It is enough to check the last transaction: if an earlier one does not end, the last does not either. */
void serial_read(void)
{
    u8 check = 0;
    u8 i;

    flash_start();
    flash_read(SPI_ENSO, NO_ADDRESS, 0);
    flash_read(SPI_READ, ADDRESS, READ_BYTES);
    flash_read(SPI_EXSO, NO_ADDRESS, 0);
    for (i = 0; i < OTP_SERIAL_SIZE; i++)
        check ^= BULK_OUT_BUFFER[i];
    if (check || FLASH_CSR & FLASH_CSR_BUSY)
        check = 0xFF;
    for (i = 0; i < SERIAL_BYTES; i++)
        serial[i] = check | BULK_OUT_BUFFER[i];
}
