/* The loop around the instructions: interrupts, deadlines, stops, instrumentation, spin loops.
 *
 * The instructions run at full speed until a deadline: the caller's clock, a timer's overflow, the native
 * device's time, or 0 as soon as something wants attention. Everything rare happens here, between them.
 */
#include "internal.h"
#include "opcodes.h"

enum { LOW_PRIORITY = 1, HIGH_PRIORITY = 2 };
enum { STACK_RESET = 0x07 };
enum { CALLS_MARGIN = 4096 }; /* entries of `calls` that a round of the loop in mcs51_run may need */

/* How a spin loop is looked for: every `gap` clocks, at most so many instructions a round. */
enum { PROBE_INSTRUCTIONS = MCS51_SPIN_LENGTH, PROBE_GAP_MIN = 1024, PROBE_GAP_MAX = 65536 };
enum { SPIN_GAP = 4 * PROBE_GAP_MAX }; /* clocks between two proofs of a loop, more than handlers take */

static const uint8_t lengths[256] = {LENGTHS};
static const uint8_t branches[256] = {BRANCHES};

void mcs51_reset(struct mcs51 *cpu)
{
    __builtin_memset(cpu->sfr, 0, sizeof cpu->sfr);
    SFR(SP) = STACK_RESET;
    SFR(P0) = SFR(P1) = SFR(P2) = SFR(P3) = 0xFF;
    SFR(TCON) = (cpu->line[0] ? TCON_IE0 : 0) | (cpu->line[1] ? TCON_IE1 : 0);
    cpu->pc = 0;
    cpu->in_service = cpu->hold = cpu->pending_stop = cpu->resume = 0;
    cpu->stack_floor = 0;
    cpu->probe_gap = PROBE_GAP_MIN;
    cpu->probe_due = cpu->clock + PROBE_GAP_MIN;
    cpu->spin.length = 0;
    mcs51_timers_sync(cpu, cpu->clock);
    mcs51_timers_schedule(cpu);
    if (cpu->calls)
        mcs51_record(cpu, MCS51_RESET, SFR(SP));
}

static void stop(struct mcs51 *cpu, enum mcs51_stop reason, uint16_t pc)
{
    cpu->pending_stop = reason;
    cpu->stop_pc = pc;
}

/* -- interrupts ---------------------------------------------------------------------------------------- */

static void save(struct mcs51_saved *saved, const struct mcs51 *cpu, uint8_t bank)
{
    const uint8_t named[6] = {SFR(ACC), SFR(B), SFR(PSW) & ~PSW_P, SFR(DPL), SFR(DPH), SFR(DPX)};
    __builtin_memcpy(saved->registers, named, 6);
    __builtin_memcpy(saved->registers + 6, cpu->iram + bank, 8);
    saved->registers[14] = SFR(SP);
    saved->bank = bank;
}

/* Requests by number: INT0, timer 0, INT1, timer 1, serial port, timer 2. */
static unsigned requests(const struct mcs51 *cpu)
{
    const uint8_t tcon = SFR(TCON);
    return (tcon & TCON_IE0 ? 0x01 : 0) | (tcon & TCON_TF0 ? 0x02 : 0) | (tcon & TCON_IE1 ? 0x04 : 0)
         | (tcon & TCON_TF1 ? 0x08 : 0) | (SFR(SCON) & (SCON_RI | SCON_TI) ? 0x10 : 0)
         | (SFR(T2CON) & (T2CON_TF2 | T2CON_EXF2) ? 0x20 : 0);
}

/* Hardware clears the request of a timer, and of an edge; software has to clear the others. */
static void acknowledge(struct mcs51 *cpu, int number)
{
    static const uint8_t cleared[6] = {TCON_IE0, TCON_TF0, TCON_IE1, TCON_TF1, 0, 0};
    const int by_level = (number == 0 && !(SFR(TCON) & TCON_IT0)) || (number == 2 && !(SFR(TCON) & TCON_IT1));
    if (!by_level)
        SFR(TCON) &= ~cleared[number];
}

/* Take the interrupt that is due, if one is. */
static int interrupt(struct mcs51 *cpu)
{
    const unsigned enabled = SFR(IE) & IE_EA ? requests(cpu) & SFR(IE) & IE_SOURCES : 0;
    if (enabled == 0 || cpu->in_service & HIGH_PRIORITY)
        return 0;
    const unsigned high = enabled & SFR(IP);
    if (!high && cpu->in_service)
        return 0;
    const int number = __builtin_ctz(high ? high : enabled);
    if (cpu->guard_interrupts)
        save(&cpu->saved[high != 0], cpu, SFR(PSW) & PSW_BANK);
    if (cpu->guard_stack && SFR(SP) >= 0xFE)
        stop(cpu, MCS51_STACK, cpu->pc);
    if (cpu->watches)
        mcs51_watch_stack(cpu, 1, 2, MCS51_WATCH_WRITE);
    cpu->iram[++SFR(SP)] = cpu->pc & 0xFF;
    cpu->iram[++SFR(SP)] = cpu->pc >> 8;
    cpu->pc = 3 + 8 * number;
    cpu->clock += INTERRUPT_CLOCKS;
    cpu->in_service |= high ? HIGH_PRIORITY : LOW_PRIORITY;
    cpu->resume = 0;
    acknowledge(cpu, number);
    if (cpu->calls)
        mcs51_record(cpu, MCS51_INTERRUPT, SFR(SP));
    return 1;
}

/* -- one instruction, watched -------------------------------------------------------------------------- */

static int watched(const struct mcs51 *cpu)
{
    return cpu->profile || cpu->marks || cpu->loaded || cpu->covered || cpu->guard_stack
        || cpu->guard_interrupts || cpu->watches || cpu->calls;
}

static void check_stack(struct mcs51 *cpu, uint8_t opcode, uint16_t pc, int before)
{
    const int now = SFR(SP), floor = cpu->stack_floor ? cpu->stack_floor : STACK_RESET;
    const int pushes = opcode == 0xC0 || opcode == 0x12 || (opcode & 0x1F) == 0x11;
    const int pops = opcode == 0xD0 ? 1 : opcode == 0x22 || opcode == 0x32 ? 2 : 0;
    if (pushes ? now < before : before - pops < floor && pops)
        stop(cpu, MCS51_STACK, pc);
    if (!pushes && !pops && now != before && !cpu->stack_floor)
        cpu->stack_floor = now;
}

/* At RETI, before it: what differs from the entry of the interrupt, as an index into `registers`; or -1. */
static int clobbered(const struct mcs51 *cpu)
{
    const struct mcs51_saved *const saved = &cpu->saved[cpu->in_service >> 1];
    struct mcs51_saved now;
    save(&now, cpu, saved->bank);
    now.registers[14] -= 2; /* the return address is still on the stack */
    for (int i = 0; i < (int)sizeof now.registers; i++)
        if (now.registers[i] != saved->registers[i])
            return i;
    return -1;
}

/* Execute one instruction with the instrumentation that is switched on. */
static void step(struct mcs51 *cpu)
{
    const uint16_t pc = cpu->pc;
    const unsigned at = bank_of(cpu, pc) | pc;
    const uint8_t opcode = cpu->code[SFR(CODE_BANK) & 1][pc], sp = SFR(SP);
    const uint64_t clock = cpu->clock;
    if (!cpu->resume && ((cpu->marks && cpu->marks[at]) || (cpu->loaded && !cpu->loaded[at]))) {
        stop(cpu, cpu->marks && cpu->marks[at] ? MCS51_BREAKPOINT : MCS51_ERASED, pc);
        cpu->resume = 1;
        return;
    }
    cpu->resume = 0;
    const int changed = cpu->guard_interrupts && opcode == 0x32 && cpu->in_service ? clobbered(cpu) : -1;
    uint8_t kept[WATCH_KEPT];
    if (cpu->watches)
        mcs51_watch_before(cpu, &cpu->code[SFR(CODE_BANK) & 1][pc], kept);
    mcs51_execute(cpu, 0);
    if (cpu->pending_stop == MCS51_ILLEGAL)
        return;
    if (cpu->watches)
        mcs51_watch_after(cpu, kept);
    if (cpu->profile)
        cpu->profile[at] += cpu->clock - clock;
    if (cpu->covered) {
        const int taken = cpu->pc != (uint16_t)(pc + lengths[opcode]);
        cpu->covered[at] |= 1 | (branches[opcode] ? taken ? 2 : 4 : 0);
    }
    if (cpu->calls)
        mcs51_record_instruction(cpu, opcode, sp);
    if (cpu->guard_stack)
        check_stack(cpu, opcode, pc, sp);
    if (changed >= 0) {
        stop(cpu, MCS51_CLOBBERED, pc);
        cpu->value = changed;
    }
}

/* -- spin loops ---------------------------------------------------------------------------------------- */

enum { NO_MOVX = -1, MOVX_WRITES = 1 << 17 };

/* The MOVX byte that the instruction at the PC accesses, plane << 16 | address, and MOVX_WRITES; or NO_MOVX. */
static int movx(const struct mcs51 *cpu)
{
    const uint8_t opcode = cpu->code[SFR(CODE_BANK) & 1][cpu->pc];
    const int plane = (SFR(DPX) & 1) << 16, writes = opcode < 0xF0 ? 0 : MOVX_WRITES;
    switch (opcode) {
    case 0xE0: case 0xF0:
        return SFR(DPH) << 8 | SFR(DPL) | plane | writes;
    case 0xE2: case 0xE3: case 0xF2: case 0xF3:
        return SFR(P2) << 8 | cpu->iram[(SFR(PSW) & PSW_BANK) | (opcode & 1)] | plane | writes;
    default:
        return NO_MOVX;
    }
}

/* Whether a MOVX access leaves the world as it is. */
static int harmless(const struct mcs51 *cpu, int access)
{
    if (access == NO_MOVX)
        return 1;
    const int plane = access >> 16 & 1, address = access & 0xFFFF;
    const uint8_t flags = cpu->flags[plane][address];
    if (!(access & MOVX_WRITES))
        return !(flags & MCS51_READ_CALLS);
    return flags == 0 && cpu->page[plane][address >> 8][address & 0xFF] == SFR(ACC);
}

/* Add a MOVX byte that a loop reads; in order, as a round may be looked at from any of its instructions. */
static void add_read(struct mcs51_spin *spin, uint32_t access)
{
    int at = 0;
    while (at < spin->read_count && spin->reads[at] < access)
        at++;
    if (at < spin->read_count && spin->reads[at] == access)
        return;
    if (spin->read_count == MCS51_SPIN_READS) {
        spin->too_many = 1;
        return;
    }
    for (int i = spin->read_count++; i > at; i--)
        spin->reads[i] = spin->reads[i - 1];
    spin->reads[at] = access;
}

/* A loop has been proven from clock `start` to now. Stop if it is time to report it. */
static void proven(struct mcs51 *cpu, const struct mcs51_spin *found, uint64_t start)
{
    struct mcs51_spin *const spin = &cpu->spin;
    if (spin->length != found->length || spin->at != found->at || spin->in_service != cpu->in_service
        || spin->read_count != found->read_count || start > spin->seen + SPIN_GAP
        || __builtin_memcmp(spin->reads, found->reads, sizeof found->reads) != 0) {
        const uint64_t limit = spin->limit;
        *spin = *found;
        spin->limit = limit;
        spin->since = start;
        spin->in_service = cpu->in_service;
    }
    spin->seen = cpu->clock;
    spin->spent += cpu->clock - start;
    const uint64_t lasted = spin->seen - spin->since;
    if (spin->limit && lasted >= spin->limit && spin->read_count && !spin->stopped && spin->spent >= lasted / 2) {
        spin->stopped = 1;
        stop(cpu, MCS51_SPINNING, spin->at);
    }
}

/* Execute instructions one by one until the PC comes round. If nothing but the clock has changed, neither
 * memory nor any register, the same will happen again and again until `limit`: whole rounds are skipped, as
 * many as end before it. Interrupts cannot come up in between: their causes are at the limit, or impure. */
static void probe(struct mcs51 *cpu, uint64_t limit)
{
    enum { REGISTERS = sizeof cpu->iram + sizeof cpu->sfr };
    uint8_t before[REGISTERS];
    struct mcs51_spin found = {.at = UINT32_MAX};
    uint8_t clocks[PROBE_INSTRUCTIONS];
    const uint64_t start = cpu->clock, first = cpu->instructions;
    const uint16_t pc = cpu->pc;
    const uint8_t floor = cpu->stack_floor; /* all that a guard remembers */
    __builtin_memcpy(before, cpu->iram, REGISTERS);
    cpu->impure = 0;

    int count = 0, same = 0;
    while (count < PROBE_INSTRUCTIONS && !same) {
        const uint64_t clock = cpu->clock;
        const uint32_t at = bank_of(cpu, cpu->pc) | cpu->pc;
        const int access = movx(cpu);
        if (!harmless(cpu, access))
            break;
        if (access != NO_MOVX && !(access & MOVX_WRITES))
            add_read(&found, access);
        found.trail[count] = at;
        found.at = found.at < at ? found.at : at;
        step(cpu);
        clocks[count++] = cpu->clock - clock;
        if (cpu->pending_stop || cpu->watch_hit || cpu->impure || cpu->hold || cpu->clock >= limit)
            break;
        same = cpu->pc == pc && cpu->stack_floor == floor
            && __builtin_memcmp(before, cpu->iram, REGISTERS) == 0;
    }
    if (same) {
        const uint64_t length = cpu->clock - start, rounds = (limit - 1 - cpu->clock) / length;
        const int shown = cpu->calls && rounds;
        if (shown)
            mcs51_record(cpu, MCS51_SKIP, SFR(SP));
        cpu->instructions += rounds * (cpu->instructions - first);
        cpu->clock += rounds * length;
        cpu->skipped += rounds * length;
        if (shown)
            mcs51_record(cpu, MCS51_SKIPPED, SFR(SP));
        for (int i = 0; cpu->profile && i < count; i++)
            cpu->profile[found.trail[i]] += rounds * clocks[i];
        found.length = count;
        proven(cpu, &found, start);
    }
    cpu->probe_gap = same ? PROBE_GAP_MIN : cpu->probe_gap * 2;
    if (cpu->probe_gap > PROBE_GAP_MAX)
        cpu->probe_gap = PROBE_GAP_MAX;
    cpu->probe_due = cpu->clock + cpu->probe_gap;
}

/* -- running ------------------------------------------------------------------------------------------- */

int mcs51_run(struct mcs51 *cpu, uint64_t until)
{
    struct mcs51_device *const device = cpu->device;
    for (;;) {
        if (cpu->clock >= cpu->timer_due)
            mcs51_timers_sync(cpu, cpu->clock);
        if (!cpu->pending_stop && device && cpu->clock >= device->due) {
            cpu->device_reason = device->tick(device->self, cpu->clock);
            if (cpu->device_reason)
                stop(cpu, MCS51_NATIVE_STOP, cpu->pc);
        }
        if (cpu->pending_stop) {
            const int reason = cpu->pending_stop;
            cpu->pending_stop = 0;
            return reason;
        }
        if (cpu->watch_hit)
            return MCS51_WATCHED;
        if (cpu->calls && cpu->call_count > MCS51_CALLS - CALLS_MARGIN)
            return MCS51_CALLED;
        if (cpu->clock >= until)
            return MCS51_UNTIL;
        if (!cpu->hold && interrupt(cpu))
            continue;

        const uint64_t limit = earlier(until, earlier(cpu->timer_due, device ? device->due : UINT64_MAX));
        if (cpu->hold) {
            const uint64_t before = cpu->instructions;
            cpu->hold = 0;
            if (watched(cpu))
                step(cpu);
            else
                mcs51_execute(cpu, 0);
            if (cpu->instructions == before) /* it stopped before it: a breakpoint */
                cpu->hold = 1;
        } else if (cpu->skip && cpu->clock >= cpu->probe_due) {
            probe(cpu, limit);
        } else if (watched(cpu)) {
            step(cpu);
        } else {
            mcs51_execute(cpu, cpu->skip ? earlier(limit, cpu->probe_due) : limit);
        }
    }
}
