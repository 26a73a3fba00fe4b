/* The interrupt handlers; main.c declares them to the compiler by including this. */
#ifndef INTERRUPT_H
#define INTERRUPT_H

void interrupt_0(void) __interrupt(0);
void interrupt_1(void) __interrupt(2);

#endif
