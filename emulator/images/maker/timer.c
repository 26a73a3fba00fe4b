#include "timer.h"

void timer_start(u8 mode, u16 ticks)
{
    TIMER0_CONTROL = 0x04;
    TIMER0_CONTROL = 0x02;
    TIMER0_MODE = (TIMER0_MODE & ~0x07) | mode;
    TIMER0_HIGH = HIGH(ticks);
    TIMER0_LOW = LOW(ticks);
    TIMER0_CONTROL = 0x01;
}

u8 timer_expired(void)
{
    return TIMER0_CONTROL & 0x02;
}

void timer_sleep(u8 mode, u16 ticks)
{
    timer_start(mode, ticks);
    while (!timer_expired())
        ;
}
