/* What the core's files share: names of the special function registers, and the functions between them.
 *
 *   instructions.c   the 256 opcodes; runs at full speed until a clock
 *   registers.c      special function registers that are more than storage; MOVX bytes that have flags
 *   timers.c         timers 0 to 2, brought up to date only on access or overflow
 *   mcs51.c          the loop around it: interrupts, deadlines, stops, instrumentation, spin loops
 *   watch.c          which watched bytes an instruction touches, for a debugger
 *   calls.c          calls, returns, interrupts and changes of registers, for timelines and waveforms
 */
#ifndef TOWLINE_MCS51_INTERNAL_H
#define TOWLINE_MCS51_INTERNAL_H

#include "mcs51.h"

enum sfr {
    P0 = 0x80, SP = 0x81, DPL = 0x82, DPH = 0x83, TCON = 0x88, TMOD = 0x89,
    TL0 = 0x8A, TL1 = 0x8B, TH0 = 0x8C, TH1 = 0x8D, P1 = 0x90, DPX = 0x93, CODE_BANK = 0x96,
    SCON = 0x98, SBUF = 0x99, P2 = 0xA0, IE = 0xA8, P3 = 0xB0, IP = 0xB8,
    T2CON = 0xC8, RCAP2L = 0xCA, RCAP2H = 0xCB, TL2 = 0xCC, TH2 = 0xCD, PSW = 0xD0, ACC = 0xE0, B = 0xF0,
};

enum { TCON_IT0 = 0x01, TCON_IE0 = 0x02, TCON_IT1 = 0x04, TCON_IE1 = 0x08,
       TCON_TR0 = 0x10, TCON_TF0 = 0x20, TCON_TR1 = 0x40, TCON_TF1 = 0x80 };
enum { SCON_RI = 0x01, SCON_TI = 0x02, SCON_REN = 0x10 };
enum { T2CON_CAPTURE = 0x01, T2CON_COUNTER = 0x02, T2CON_TR2 = 0x04, T2CON_BAUD = 0x30,
       T2CON_EXF2 = 0x40, T2CON_TF2 = 0x80 };
enum { IE_EA = 0x80, IE_SOURCES = 0x3F };
enum { PSW_P = 0x01, PSW_OV = 0x04, PSW_BANK = 0x18, PSW_AC = 0x40, PSW_CY = 0x80 };

#define SFR(name) (cpu->sfr[(name) - 0x80])

static inline uint64_t earlier(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Index of a code address in tables by bank and address. */
static inline uint32_t bank_of(const struct mcs51 *cpu, uint16_t pc)
{
    return pc & 0x8000 ? (SFR(CODE_BANK) & 1u) << 16 : 0;
}

/* Calling conventions of clang that keep the emulated registers in machine registers. An instruction preserves
 * none for its caller, so that it takes all its arguments in registers and saves nothing; a slow path out of
 * one preserves most, so that the fast path need not save anything for its sake. */
#if defined(__x86_64__) || defined(__aarch64__)
#define INSTRUCTION __attribute__((preserve_none))
#define SLOW __attribute__((preserve_most, cold, noinline))
#else
#define INSTRUCTION
#define SLOW __attribute__((cold, noinline))
#endif

/* Run from cpu->pc at least one instruction, and on while the clock is below `deadline`. */
void mcs51_execute(struct mcs51 *cpu, uint64_t deadline);

/* Special function registers whose read or write is more than storage: bits of mcs51_special[direct address].
 * QUESTIONABLE ones are storage of unknown meaning, whose accesses can be reported. */
enum { READ_MEANS = 1, WRITE_MEANS = 2, QUESTIONABLE = 4 };
extern const uint8_t mcs51_special[256];

/* Stop with MCS51_SFR if the register is questioned; returns whether it is. Another stop of the same instruction
 * wins: the question stays open until the next access. */
SLOW int mcs51_question(struct mcs51 *cpu, uint32_t pc, uint8_t address);
/* A read of a special register by the instruction at `pc` that ends at `clock`: the value in bits 7:0; if
 * another bit is set, the deadline is void. */
enum { DEADLINE_VOID = 0x100 };
SLOW uint32_t mcs51_sfr_read(struct mcs51 *cpu, uint64_t clock, uint32_t pc, uint8_t address);
/* A write by the instruction at `pc` that ends at `clock`. The deadline is void after it. */
SLOW void mcs51_sfr_write(struct mcs51 *cpu, uint64_t clock, uint32_t pc, uint8_t address, uint8_t value);

/* MOVX of a byte with flags, cpu->plane and cpu->address, by the instruction at `pc` that ends at `clock`;
 * both return the deadline from then on, 0 after a stop. */
SLOW uint64_t mcs51_movx_read(struct mcs51 *cpu, uint64_t deadline, uint32_t pc);
SLOW uint64_t mcs51_movx_write(struct mcs51 *cpu, uint64_t clock, uint64_t deadline, uint32_t pc);

/* Watchpoints, while `watches` is set: before the instruction at `code`, and after it, with what the first has
 * kept of the registers in between; and the bytes from SP + offset on. What was done is left in
 * `watches`, and that something was in watch_hit. */
enum { WATCH_KEPT = 6 };
void mcs51_watch_before(struct mcs51 *cpu, const uint8_t *code, uint8_t *kept);
void mcs51_watch_after(struct mcs51 *cpu, const uint8_t *kept);
void mcs51_watch_stack(struct mcs51 *cpu, int offset, int count, uint8_t kind);

/* PSW with its parity, which its storage lacks until it is read. */
uint8_t mcs51_psw(const struct mcs51 *cpu);

/* While `calls` is set: record that control has come to cpu->pc in some way; and the same of an instruction that
 * has been executed, if it is one of those, with SP as it was before it. Both record changes of `shown`. */
void mcs51_record(struct mcs51 *cpu, enum mcs51_call_kind kind, uint8_t sp);
void mcs51_record_instruction(struct mcs51 *cpu, uint8_t opcode, uint8_t sp);

/* Bring the timers' registers up to `clock`. */
void mcs51_timers_sync(struct mcs51 *cpu, uint64_t clock);
/* Find timer_due again, after a change of what they count. */
void mcs51_timers_schedule(struct mcs51 *cpu);

#endif
