/* Watchpoints on IRAM and the special function registers: what one instruction is going to touch.
 *
 * A debugger's: it is asked before an instruction, and only while `watches` is set. Operands come from the opcode
 * table (opcodes.py). A read or write counts that names its byte: by direct address or bit, by R0 to R7 or
 * through @R0 and @R1, and on the stack. ACC, B, PSW, SP and DPTR change without being named too, so that of
 * them a change counts as a write; a core register read without being named (A of ADD, R0 of @R0) does not count.
 */
#include "internal.h"
#include "opcodes.h"

static const uint16_t touched[256] = {TOUCHED};
static const uint8_t implicit[6] = {ACC, B, PSW, SP, DPL, DPH};

enum { NOTHING, DIRECT_1, DIRECT_2, BIT_1, AT_RI, RN };

/* The byte as an index into `watches`. */
static unsigned place(const struct mcs51 *cpu, const uint8_t *code, int how)
{
    const unsigned bank = SFR(PSW) & PSW_BANK, direct = code[how == DIRECT_2 ? 2 : 1];
    unsigned byte;
    switch (how) {
    case AT_RI:
        return cpu->iram[bank | (code[0] & 1)];
    case RN:
        return bank | (code[0] & 7);
    case BIT_1:
        byte = direct < 0x80 ? 0x20 + (direct >> 3) : direct & 0xF8;
        break;
    default:
        byte = direct;
    }
    return byte < 0x80 ? byte : MCS51_WATCH_SFR + byte;
}

static void touch(struct mcs51 *cpu, unsigned at, uint8_t kind)
{
    const uint8_t hit = cpu->watches[at] & kind;
    cpu->watches[at] |= hit << MCS51_WATCH_DONE;
    cpu->watch_hit |= hit;
}

void mcs51_watch_stack(struct mcs51 *cpu, int offset, int count, uint8_t kind)
{
    for (int i = 0; i < count; i++)
        touch(cpu, (uint8_t)(SFR(SP) + offset + i), kind);
}

void mcs51_watch_before(struct mcs51 *cpu, const uint8_t *code, uint8_t *kept)
{
    enum { PUSH = 0xC0, POP = 0xD0, LCALL = 0x12, ACALL = 0x11, RET = 0x22, RETI = 0x32 };
    const uint16_t operands = touched[code[0]];
    for (int shift = 0; shift < 16; shift += 8) {
        const int how = operands >> shift & 0x0F, kind = operands >> (shift + 4) & 0x0F;
        if (how != NOTHING)
            touch(cpu, place(cpu, code, how), kind);
    }
    if (code[0] == LCALL || (code[0] & 0x1F) == ACALL)
        mcs51_watch_stack(cpu, 1, 2, MCS51_WATCH_WRITE);
    else if (code[0] == RET || code[0] == RETI)
        mcs51_watch_stack(cpu, -1, 2, MCS51_WATCH_READ);
    else if (code[0] == PUSH)
        mcs51_watch_stack(cpu, 1, 1, MCS51_WATCH_WRITE);
    else if (code[0] == POP)
        mcs51_watch_stack(cpu, 0, 1, MCS51_WATCH_READ);
    for (int i = 0; i < (int)sizeof implicit; i++)
        kept[i] = SFR(implicit[i]);
}

void mcs51_watch_after(struct mcs51 *cpu, const uint8_t *kept)
{
    for (int i = 0; i < (int)sizeof implicit; i++)
        if (SFR(implicit[i]) != kept[i])
            touch(cpu, MCS51_WATCH_SFR + implicit[i], MCS51_WATCH_WRITE);
}
