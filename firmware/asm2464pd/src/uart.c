#include "uart.h"

#include "chip.h"

void uart_start(void)
{
    UART_LCR &= ~UART_LCR_PARITY;
}

/* The transmitter's FIFO has room for a line of text. */
void uart_print(const __code char *text)
{
    while (*text)
        UART_THR = *text++;
}
