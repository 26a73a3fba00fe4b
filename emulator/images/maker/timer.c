#include "timer.h"

void timer_start(u16 ticks)
{
    TIMER0_CONTROL = 0x04;
    TIMER0_CONTROL = 0x02;
    TIMER0_MODE = (TIMER0_MODE & ~0x07) | 4;
    TIMER0_HIGH = HIGH(ticks);
    TIMER0_LOW = LOW(ticks);
    TIMER0_CONTROL = 0x01;
}

u8 timer_expired(void)
{
    return TIMER0_CONTROL & 0x02;
}
