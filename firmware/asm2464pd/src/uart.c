#include "uart.h"

#include "chip.h"

void uart_start(void)
{
    UART_LCR &= ~UART_LCR_PARITY;
}

/* The transmitter's FIFO takes a line of text at once. */
void uart_print(const __code char *text)
{
    while (*text)
        UART_THR = *text++;
}
