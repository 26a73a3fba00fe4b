/* Accesses that are more than storage: special function registers, and MOVX bytes that have flags.
 *
 * The serial port sends at once: its rate on this chip is not known [guess].
 */
#include "internal.h"

enum { UNKNOWN = READ_MEANS | WRITE_MEANS | QUESTIONABLE };

const uint8_t mcs51_special[256] = {
    [PSW] = READ_MEANS,
    [TL0] = READ_MEANS | WRITE_MEANS, [TH0] = READ_MEANS | WRITE_MEANS,
    [TL1] = READ_MEANS | WRITE_MEANS, [TH1] = READ_MEANS | WRITE_MEANS,
    [TL2] = READ_MEANS | WRITE_MEANS, [TH2] = READ_MEANS | WRITE_MEANS,
    [TCON] = READ_MEANS | WRITE_MEANS, [T2CON] = READ_MEANS | WRITE_MEANS, [TMOD] = WRITE_MEANS,
    [RCAP2L] = WRITE_MEANS, [RCAP2H] = WRITE_MEANS,
    [SCON] = WRITE_MEANS, [SBUF] = WRITE_MEANS,
    [IE] = WRITE_MEANS, [IP] = WRITE_MEANS, [CODE_BANK] = WRITE_MEANS,
    [P2] = UNKNOWN,
    /* What is left: everything that is not in enum sfr. */
    [0x84 ... 0x87] = UNKNOWN, [0x8E ... 0x8F] = UNKNOWN, [0x91 ... 0x92] = UNKNOWN, [0x94 ... 0x95] = UNKNOWN,
    [0x97] = UNKNOWN, [0x9A ... 0x9F] = UNKNOWN, [0xA1 ... 0xA7] = UNKNOWN, [0xA9 ... 0xAF] = UNKNOWN,
    [0xB1 ... 0xB7] = UNKNOWN, [0xB9 ... 0xC7] = UNKNOWN, [0xC9] = UNKNOWN, [0xCE ... 0xCF] = UNKNOWN,
    [0xD1 ... 0xDF] = UNKNOWN, [0xE1 ... 0xEF] = UNKNOWN, [0xF1 ... 0xFF] = UNKNOWN,
};

int mcs51_question(struct mcs51 *cpu, uint32_t pc, uint8_t address)
{
    if (!cpu->questioned[address - 0x80])
        return 0;
    cpu->pending_stop = MCS51_SFR;
    cpu->stop_pc = pc;
    cpu->asked = address;
    return 1;
}

uint8_t mcs51_psw(const struct mcs51 *cpu)
{
    return (SFR(PSW) & ~PSW_P) | (__builtin_parity(SFR(ACC)) ? PSW_P : 0);
}

uint32_t mcs51_sfr_read(struct mcs51 *cpu, uint64_t clock, uint32_t pc, uint8_t address)
{
    if (address == PSW)
        return mcs51_psw(cpu);
    if (mcs51_special[address] & QUESTIONABLE)
        return SFR(address) | (mcs51_question(cpu, pc, address) ? DEADLINE_VOID : 0);
    /* An overflow by now shows, so that reading, changing and writing flags back loses none. */
    if ((address == TCON || address == T2CON) && clock < cpu->timer_due)
        return SFR(address);
    cpu->impure = 1;
    mcs51_timers_sync(cpu, clock);
    return SFR(address);
}

/* IE0 and IE1 as they are: a level-triggered one follows its line, even after a write of software. */
static uint8_t follow_lines(const struct mcs51 *cpu, uint8_t tcon)
{
    if (!(tcon & TCON_IT0))
        tcon = (tcon & ~TCON_IE0) | (cpu->line[0] ? TCON_IE0 : 0);
    if (!(tcon & TCON_IT1))
        tcon = (tcon & ~TCON_IE1) | (cpu->line[1] ? TCON_IE1 : 0);
    return tcon;
}

void mcs51_sfr_write(struct mcs51 *cpu, uint64_t clock, uint32_t pc, uint8_t address, uint8_t value)
{
    if (mcs51_special[address] & QUESTIONABLE) {
        mcs51_question(cpu, pc, address);
        SFR(address) = value;
        return;
    }
    cpu->impure = 1;
    switch (address) {
    case SBUF:
        cpu->pending_stop = MCS51_SERIAL;
        cpu->stop_pc = pc;
        cpu->value = value;
        SFR(SCON) |= SCON_TI;
        break;
    case IE:
    case IP:
        cpu->hold = 1;
        SFR(address) = value;
        break;
    case SCON:
    case CODE_BANK:
        SFR(address) = value;
        break;
    default: /* the timers' */
        mcs51_timers_sync(cpu, clock);
        SFR(address) = address == TCON ? follow_lines(cpu, value) : value;
        mcs51_timers_schedule(cpu);
    }
}

void mcs51_line(struct mcs51 *cpu, int number, int level)
{
    const uint8_t type = number ? TCON_IT1 : TCON_IT0, pending = number ? TCON_IE1 : TCON_IE0;
    mcs51_timers_sync(cpu, cpu->clock);
    if (level && !cpu->line[number] && SFR(TCON) & type)
        SFR(TCON) |= pending;
    cpu->line[number] = level != 0;
    SFR(TCON) = follow_lines(cpu, SFR(TCON));
    mcs51_timers_schedule(cpu);
}

void mcs51_settle(struct mcs51 *cpu)
{
    mcs51_timers_sync(cpu, cpu->clock);
    SFR(PSW) = mcs51_psw(cpu);
}

void mcs51_receive(struct mcs51 *cpu, uint8_t value)
{
    if ((SFR(SCON) & (SCON_REN | SCON_RI)) != SCON_REN)
        return;
    SFR(SBUF) = value;
    SFR(SCON) |= SCON_RI;
}

uint64_t mcs51_movx_read(struct mcs51 *cpu, uint64_t deadline, uint32_t pc)
{
    const uint8_t flags = cpu->flags[cpu->plane][cpu->address];
    cpu->stop_pc = pc;
    if (flags & MCS51_READ_CALLS) {
        cpu->pending_stop = MCS51_READ;
        return 0;
    }
    SFR(ACC) = cpu->page[cpu->plane][cpu->address >> 8][cpu->address & 0xFF];
    if (!(flags & MCS51_UNINITIALISED) || !cpu->guard_uninit)
        return deadline;
    cpu->pending_stop = MCS51_UNINIT;
    cpu->value = SFR(ACC);
    return 0;
}

uint64_t mcs51_movx_write(struct mcs51 *cpu, uint64_t clock, uint64_t deadline, uint32_t pc)
{
    uint8_t *const flags = &cpu->flags[cpu->plane][cpu->address];
    uint8_t *const byte = &cpu->page[cpu->plane][cpu->address >> 8][cpu->address & 0xFF];
    struct mcs51_device *const device = cpu->device;
    cpu->value = SFR(ACC);
    cpu->stop_pc = pc;
    if (*flags & MCS51_NATIVE && device) {
        const int reason = device->write(device->self, clock, cpu->address, cpu->value);
        if (reason == 0)
            return earlier(deadline, device->due);
        cpu->device_reason = reason;
        cpu->pending_stop = MCS51_NATIVE_STOP;
        return 0;
    }
    *flags &= ~MCS51_UNINITIALISED;
    if (*flags & MCS51_WRITE_CALLS) {
        cpu->pending_stop = MCS51_WRITE;
        return 0;
    }
    if (*flags & MCS51_WRITE_CLEARS)
        *byte &= ~cpu->value;
    else if (!(*flags & MCS51_WRITE_IGNORED))
        *byte = cpu->value;
    return deadline;
}
