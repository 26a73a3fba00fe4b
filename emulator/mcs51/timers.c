/* Timers 0, 1 and 2 (MCS-51 manual, "Timer/Counters"). One count is 12 clocks, on multiples of 12 since
 * power-on [guess: the manual's machine cycle; a 1T part may count faster].
 *
 * They cost nothing while they count: registers hold the values of the last access, timer_due is the clock of
 * the next overflow, and a read, a write or a gate of a timer brings them up to date first. Counting pins
 * (C/T set) and timer 2's T2EX pin are not modelled: such a counter stands still. As a baud rate generator
 * timer 2 does not report its overflows, and counts at the rate of its other modes.
 */
#include "internal.h"

enum { CLOCKS_PER_COUNT = 12 };

/* A counter that runs: it goes up to `modulus`, sets a flag, and starts again from `reload`. */
struct counter {
    uint8_t *low;
    uint8_t *high;  /* null: 8 bits */
    uint8_t low_bits;
    uint32_t reload;
    uint8_t *flag;  /* null: an overflow is not reported */
    uint8_t mask;
};

static int gated(const struct mcs51 *cpu, int timer)
{
    const uint8_t mode = SFR(TMOD) >> (4 * timer);
    const int counts_pin = mode & 4, gate = mode & 8;
    return counts_pin || (gate && cpu->line[timer]);
}

/* The counters that run, at most four: timer 0 in mode 3 is two. */
static int running(struct mcs51 *cpu, struct counter *counter)
{
    struct counter *const first = counter;
    const int mode0 = SFR(TMOD) & 3, mode1 = SFR(TMOD) >> 4 & 3;
    uint8_t *const tcon = &SFR(TCON);

    if (SFR(TCON) & TCON_TR0 && !gated(cpu, 0)) {
        if (mode0 >= 2)
            *counter++ = (struct counter){&SFR(TL0), 0, 8, mode0 == 2 ? SFR(TH0) : 0, tcon, TCON_TF0};
        else
            *counter++ = (struct counter){&SFR(TL0), &SFR(TH0), mode0 ? 8 : 5, 0, tcon, TCON_TF0};
    }
    if (mode0 == 3 && SFR(TCON) & TCON_TR1)
        *counter++ = (struct counter){&SFR(TH0), 0, 8, 0, tcon, TCON_TF1};
    /* With timer 0 in mode 3, TR1 and TF1 are not timer 1's: it runs free and reports nothing. */
    if (mode1 != 3 && (mode0 == 3 || SFR(TCON) & TCON_TR1) && !gated(cpu, 1)) {
        uint8_t *const flag = mode0 == 3 ? 0 : tcon;
        if (mode1 == 2)
            *counter++ = (struct counter){&SFR(TL1), 0, 8, SFR(TH1), flag, TCON_TF1};
        else
            *counter++ = (struct counter){&SFR(TL1), &SFR(TH1), mode1 ? 8 : 5, 0, flag, TCON_TF1};
    }
    if (SFR(T2CON) & T2CON_TR2 && !(SFR(T2CON) & T2CON_COUNTER)) {
        const int baud = SFR(T2CON) & T2CON_BAUD;
        const int reloads = baud || !(SFR(T2CON) & T2CON_CAPTURE);
        const uint32_t reload = reloads ? SFR(RCAP2H) << 8 | SFR(RCAP2L) : 0;
        uint8_t *const flag = baud ? 0 : &SFR(T2CON);
        *counter++ = (struct counter){&SFR(TL2), &SFR(TH2), 8, reload, flag, T2CON_TF2};
    }
    return (int)(counter - first);
}

static uint32_t modulus(const struct counter *counter)
{
    return 1u << (counter->low_bits + (counter->high ? 8 : 0));
}

static uint32_t value(const struct counter *counter)
{
    const uint32_t low = *counter->low & ((1u << counter->low_bits) - 1);
    return counter->high ? (uint32_t)*counter->high << counter->low_bits | low : low;
}

static void advance(const struct counter *counter, uint64_t counts)
{
    const uint32_t left = modulus(counter) - value(counter);
    uint64_t now = value(counter) + counts;
    if (counts >= left) {
        now = counter->reload + (counts - left) % (modulus(counter) - counter->reload);
        if (counter->flag)
            *counter->flag |= counter->mask;
    }
    const uint8_t low = (1u << counter->low_bits) - 1;
    *counter->low = (*counter->low & ~low) | (now & low);
    if (counter->high)
        *counter->high = now >> counter->low_bits;
}

void mcs51_timers_schedule(struct mcs51 *cpu)
{
    struct counter counters[4];
    const int count = running(cpu, counters);
    cpu->timer_due = UINT64_MAX;
    for (int i = 0; i < count; i++) {
        const uint64_t left = modulus(&counters[i]) - value(&counters[i]);
        const uint64_t due = (cpu->timer_count + left) * CLOCKS_PER_COUNT;
        if (counters[i].flag && due < cpu->timer_due)
            cpu->timer_due = due;
    }
}

void mcs51_timers_sync(struct mcs51 *cpu, uint64_t clock)
{
    const uint64_t now = clock / CLOCKS_PER_COUNT;
    const uint64_t counts = now - cpu->timer_count;
    cpu->timer_count = now;
    if (counts == 0)
        return;
    struct counter counters[4];
    const int count = running(cpu, counters);
    for (int i = 0; i < count; i++)
        advance(&counters[i], counts);
    if (count)
        mcs51_timers_schedule(cpu);
}
