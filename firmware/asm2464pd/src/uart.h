/* The serial console: 921600 baud, 8 data bits, no parity, output only. */
#ifndef UART_H
#define UART_H

void uart_start(void);
void uart_print(const __code char *text);

#endif
