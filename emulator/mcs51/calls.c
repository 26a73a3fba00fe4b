/* Calls, returns, interrupts and jumps from function to function, as they happen: what a timeline is made of;
 * and changes of special function registers, for waveforms.
 *
 * Coming to the beginning of a function (`entries`) by no call counts as a jump: a tail call, the jump of an
 * interrupt vector, or code that runs on into the next function. The reader finds out the caller
 * by SP: code also returns to addresses that it pushed.
 */
#include "internal.h"

static void append(struct mcs51 *cpu, uint32_t at, enum mcs51_call_kind kind, uint8_t sp)
{
    if (cpu->call_count == MCS51_CALLS) /* the core is reset again and again, and never runs */
        return;
    cpu->calls[cpu->call_count++] = (struct mcs51_call){.clock = cpu->clock, .at = at, .kind = kind, .sp = sp};
}

static void record_registers(struct mcs51 *cpu)
{
    for (int i = 0; i < cpu->shown_count; i++) {
        const uint8_t address = cpu->shown[i], value = address == PSW ? mcs51_psw(cpu) : SFR(address);
        if (value != cpu->known[i])
            append(cpu, address, MCS51_REGISTER, value);
        cpu->known[i] = value;
    }
}

void mcs51_record(struct mcs51 *cpu, enum mcs51_call_kind kind, uint8_t sp)
{
    append(cpu, bank_of(cpu, cpu->pc) | cpu->pc, kind, sp);
    record_registers(cpu);
}

void mcs51_record_instruction(struct mcs51 *cpu, uint8_t opcode, uint8_t sp)
{
    enum { ACALL = 0x11, LCALL = 0x12, RET = 0x22, RETI = 0x32 };
    const uint32_t at = bank_of(cpu, cpu->pc) | cpu->pc;
    if (opcode == LCALL || (opcode & 0x1F) == ACALL)
        append(cpu, at, MCS51_CALL, SFR(SP));
    else if (opcode == RET || opcode == RETI)
        append(cpu, at, opcode == RET ? MCS51_RETURN : MCS51_RETI, sp);
    else if (cpu->entries[at])
        append(cpu, at, MCS51_JUMP, SFR(SP));
    record_registers(cpu);
}
