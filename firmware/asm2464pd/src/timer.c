#include "timer.h"

#include "job.h"
#include "supply.h"

enum { EXPIRED = TIMER0_CSR_EXPIRED };
enum { TICK_US = 500, STRIDE_US = 30000 };
enum { UPTIME_MS = 10 };

__idata u32 uptime;

/* Microseconds of the deadline that the timer has not been started for. */
static u32 left;

#define HALF_MILLISECOND(mode) \
    ((mode) = (mode) & ~TIMER0_MODE_PRESCALER | TIMER0_MODE_PRESCALER_HALF_MILLISECOND)

static void start_uptime(void)
{
    TIMER2_CSR = TIMER0_CSR_CLEAR;
    TIMER2_CSR = EXPIRED;
    TIMER2_CSR = TIMER0_CSR_ENABLE;
}

void timer_start(void)
{
    HALF_MILLISECOND(TIMER0_MODE);
    HALF_MILLISECOND(TIMER2_MODE);
    TIMER0_THRESHOLD_HIGH = 0;
    TIMER2_THRESHOLD_HIGH = 0;
    TIMER2_THRESHOLD_LOW = 2 * UPTIME_MS;
    start_uptime();
}

void timer_poll(void)
{
    if (supply_busy)
        supply_poll();
    if (!(TIMER2_CSR & EXPIRED))
        return;
    start_uptime();
    HOLD;
    uptime += UPTIME_MS;
    RELEASE;
}

/* One tick more than the time to wait: one is already running. The last stride has one for the remainder. */
static void start_stride(void)
{
    u16 stride = left < STRIDE_US ? (u16)left : STRIDE_US;
    u8 ticks = 1;

    left -= stride;
    if (!left)
        ticks++;
    for (; stride >= TICK_US; stride -= TICK_US)
        ticks++;
    TIMER0_CSR = TIMER0_CSR_CLEAR;
    TIMER0_CSR = EXPIRED;
    TIMER0_THRESHOLD_LOW = ticks;
    TIMER0_CSR = TIMER0_CSR_ENABLE;
}

void deadline_set(u32 microseconds)
{
    left = microseconds;
    start_stride();
}

u8 deadline_over(void)
{
    timer_poll();
    if (!(TIMER0_CSR & EXPIRED))
        return 0;
    if (!left)
        return 1;
    start_stride();
    return 0;
}

/* A pass takes 114 clocks: 25 turns of 4, and the rest. */
static void wait_short(u16 microseconds)
{
    u8 turns;

    for (; microseconds; microseconds--) {
        turns = 25;
        while (--turns)
            ;
    }
}

void wait_us(u32 microseconds)
{
    if (microseconds < TICK_US) {
        wait_short((u16)microseconds);
        return;
    }
    deadline_set(microseconds);
    while (!deadline_over() && !GIVEN_UP)
        ;
}
