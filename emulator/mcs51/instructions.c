/* The 256 opcodes (MCS-51 manual, "Instruction Set"), each a small function that ends by jumping to the next.
 *
 * `clock`, `pc` and the rest of STATE stay in machine registers from one instruction to the next: the
 * functions take them all as arguments and end in a tail call (musttail). Everything else is
 * in struct mcs51. An instruction is charged before it acts, so that an access happens at the clock at which
 * the instruction ends. The one check between two instructions is `clock >= deadline`; anything that needs
 * attention sets the deadline to 0.
 */
#include <stddef.h>

#include "internal.h"
#include "opcodes.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define TAIL __attribute__((musttail)) return

#define STATE struct mcs51 *cpu, const uint8_t *code, uint64_t clock, uint64_t deadline, \
              uint64_t instructions, uint32_t pc
#define ARGS cpu, code, clock, deadline, instructions, pc

typedef INSTRUCTION void handler(STATE);

static handler leave;
static handler *const table[256];

/* An instruction: `next` is the address of the one behind it until a jump changes it. */
#define OP(code_, ...)                                        \
    static INSTRUCTION void op_##code_(STATE)                 \
    {                                                         \
        uint16_t next = pc + LENGTH_##code_;                  \
        clock += CLOCKS_##code_;                              \
        __VA_ARGS__                                           \
        pc = next;                                            \
        instructions++;                                       \
        if (LIKELY(clock < deadline))                         \
            TAIL table[code[pc]](ARGS);                       \
        TAIL leave(ARGS);                                     \
    }

/* Families: by register number, by R0 or R1, by bits 10:8 of an address. */
#define NUMBERED(code_, number, ...) OP(code_, enum { n = number }; __VA_ARGS__)
#define OP_AT_RI(h, ...) NUMBERED(h##6, 0, __VA_ARGS__) NUMBERED(h##7, 1, __VA_ARGS__)
#define OP_RN(h, ...)                                                       \
    NUMBERED(h##8, 0, __VA_ARGS__) NUMBERED(h##9, 1, __VA_ARGS__)           \
    NUMBERED(h##A, 2, __VA_ARGS__) NUMBERED(h##B, 3, __VA_ARGS__)           \
    NUMBERED(h##C, 4, __VA_ARGS__) NUMBERED(h##D, 5, __VA_ARGS__)           \
    NUMBERED(h##E, 6, __VA_ARGS__) NUMBERED(h##F, 7, __VA_ARGS__)
#define OP_ADDR11_EVEN(l, ...)                                              \
    NUMBERED(0##l, 0x000, __VA_ARGS__) NUMBERED(2##l, 0x100, __VA_ARGS__)   \
    NUMBERED(4##l, 0x200, __VA_ARGS__) NUMBERED(6##l, 0x300, __VA_ARGS__)   \
    NUMBERED(8##l, 0x400, __VA_ARGS__) NUMBERED(A##l, 0x500, __VA_ARGS__)   \
    NUMBERED(C##l, 0x600, __VA_ARGS__) NUMBERED(E##l, 0x700, __VA_ARGS__)
#define OP_ADDR11_ODD(l, ...)                                               \
    NUMBERED(1##l, 0x000, __VA_ARGS__) NUMBERED(3##l, 0x100, __VA_ARGS__)   \
    NUMBERED(5##l, 0x200, __VA_ARGS__) NUMBERED(7##l, 0x300, __VA_ARGS__)   \
    NUMBERED(9##l, 0x400, __VA_ARGS__) NUMBERED(B##l, 0x500, __VA_ARGS__)   \
    NUMBERED(D##l, 0x600, __VA_ARGS__) NUMBERED(F##l, 0x700, __VA_ARGS__)

/* -- operands ------------------------------------------------------------------------------------------ */

#define BYTE1 code[pc + 1]
#define BYTE2 code[pc + 2]
#define WORD12 (BYTE1 << 8 | BYTE2)

#define A SFR(ACC)
#define FLAGS SFR(PSW)
#define CARRY (FLAGS >> 7)
#define DATA_POINTER ((uint16_t)(SFR(DPH) << 8 | SFR(DPL)))
#define RN cpu->iram[(FLAGS & PSW_BANK) | n]
#define AT_RI cpu->iram[RN]

/* The byte behind a direct address: 0x00 to 0x7F in IRAM, the rest among the special function registers. */
static inline uint8_t *direct(struct mcs51 *cpu, uint8_t address)
{
    _Static_assert(offsetof(struct mcs51, sfr) == offsetof(struct mcs51, iram) + 256, "contiguous");
    return (uint8_t *)cpu + offsetof(struct mcs51, iram) + address + (address & 0x80);
}

#define READ(address) ({                                                             \
    const uint8_t from = (address);                                                  \
    uint32_t read;                                                                   \
    if (LIKELY(!(mcs51_special[from] & READ_MEANS))) {                               \
        read = *direct(cpu, from);                                                   \
    } else {                                                                         \
        read = mcs51_sfr_read(cpu, clock, pc, from);                                 \
        if (read & DEADLINE_VOID)                                                    \
            deadline = 0;                                                            \
    }                                                                                \
    (uint8_t)read; })

#define WRITE(address, value) do {                                                   \
    const uint8_t to = (address), written = (value);                                 \
    if (LIKELY(!(mcs51_special[to] & WRITE_MEANS))) {                                \
        *direct(cpu, to) = written;                                                  \
    } else {                                                                         \
        mcs51_sfr_write(cpu, clock, pc, to, written);                                \
        code = cpu->code[SFR(CODE_BANK) & 1];                                        \
        deadline = 0;                                                                \
    }                                                                                \
} while (0)

/* Bits 0x00 to 0x7F are those of IRAM 0x20 to 0x2F, the rest those of every eighth special register. */
static inline uint8_t bit_byte(uint8_t bit)
{
    return bit < 0x80 ? 0x20 + (bit >> 3) : bit & 0xF8;
}

#define READ_BIT(bit) ({ const uint8_t which = (bit); READ(bit_byte(which)) >> (which & 7) & 1; })

#define WRITE_BIT(bit, value) do {                                                   \
    const uint8_t which = (bit), mask = 1 << (which & 7), byte = bit_byte(which);    \
    const uint8_t before = READ(byte);                                               \
    WRITE(byte, (value) ? before | mask : before & ~mask);                           \
} while (0)

#define SET_CARRY(value) (FLAGS = (FLAGS & ~PSW_CY) | ((value) ? PSW_CY : 0))

#define SET_DATA_POINTER(value) do {                                                 \
    const uint16_t pointer = (value);                                                \
    SFR(DPH) = pointer >> 8;                                                         \
    SFR(DPL) = pointer & 0xFF;                                                       \
} while (0)

static inline void push(struct mcs51 *cpu, uint8_t value)
{
    cpu->iram[++SFR(SP)] = value;
}

static inline uint8_t pop(struct mcs51 *cpu)
{
    return cpu->iram[SFR(SP)--];
}

#define CALL(target) do { push(cpu, next & 0xFF); push(cpu, next >> 8); next = (target); } while (0)
#define RETURN do { const uint8_t high = pop(cpu); next = high << 8 | pop(cpu); } while (0)
#define BRANCH(offset, condition) do { if (condition) next += (int8_t)(offset); } while (0)
#define TARGET11 ((next & 0xF800) | n | BYTE1)

/* -- arithmetic ---------------------------------------------------------------------------------------- */

static inline void add(struct mcs51 *cpu, unsigned operand, unsigned carry)
{
    const unsigned a = A, sum = a + operand + carry;
    const unsigned half = (a ^ operand ^ sum) & 0x10, overflow = (a ^ sum) & (operand ^ sum) & 0x80;
    FLAGS = (FLAGS & ~(PSW_CY | PSW_AC | PSW_OV)) | (sum >> 8) << 7 | half << 2 | overflow >> 5;
    A = sum;
}

static inline void subtract(struct mcs51 *cpu, unsigned operand)
{
    const unsigned a = A, difference = a - operand - CARRY;
    const unsigned half = (a ^ operand ^ difference) & 0x10;
    const unsigned overflow = (a ^ operand) & (a ^ difference) & 0x80;
    FLAGS = (FLAGS & ~(PSW_CY | PSW_AC | PSW_OV)) | (difference >> 8 & 1) << 7 | half << 2 | overflow >> 5;
    A = difference;
}

static inline void multiply(struct mcs51 *cpu)
{
    const unsigned product = A * SFR(B);
    A = product;
    SFR(B) = product >> 8;
    FLAGS = (FLAGS & ~(PSW_CY | PSW_OV)) | (product > 0xFF ? PSW_OV : 0);
}

/* Division by zero leaves A and B, which the manual calls undefined, and sets OV. */
static inline void divide(struct mcs51 *cpu)
{
    const unsigned dividend = A, divisor = SFR(B);
    FLAGS = (FLAGS & ~(PSW_CY | PSW_OV)) | (divisor == 0 ? PSW_OV : 0);
    if (divisor == 0)
        return;
    A = dividend / divisor;
    SFR(B) = dividend % divisor;
}

/* DA sets CY and never clears it. */
static inline void decimal_adjust(struct mcs51 *cpu)
{
    unsigned sum = A;
    if ((sum & 0x0F) > 9 || FLAGS & PSW_AC)
        sum += 0x06;
    if (sum > 0x9F || FLAGS & PSW_CY)
        sum += 0x60;
    if (sum > 0xFF)
        FLAGS |= PSW_CY;
    A = sum;
}

#define EXCHANGE(place) do { const uint8_t held = A; A = (place); (place) = held; } while (0)

#define COMPARE_AND_BRANCH(left, right) do {                                         \
    const uint8_t one = (left), other = (right);                                     \
    SET_CARRY(one < other);                                                          \
    BRANCH(BYTE2, one != other);                                                     \
} while (0)

/* -- external memory ----------------------------------------------------------------------------------- */

#define MOVX_READ(from) do {                                                         \
    const uint16_t address = (from);                                                 \
    const int plane = SFR(DPX) & 1;                                                  \
    if (LIKELY(!(cpu->flags[plane][address] & (MCS51_READ_CALLS | MCS51_UNINITIALISED)))) { \
        A = cpu->page[plane][address >> 8][address & 0xFF];                          \
    } else {                                                                         \
        cpu->address = address;                                                      \
        cpu->plane = plane;                                                          \
        deadline = mcs51_movx_read(cpu, deadline, pc);                               \
    }                                                                                \
} while (0)

#define MOVX_WRITE(to) do {                                                          \
    const uint16_t address = (to);                                                   \
    const int plane = SFR(DPX) & 1;                                                  \
    if (LIKELY(!cpu->flags[plane][address])) {                                       \
        cpu->page[plane][address >> 8][address & 0xFF] = A;                          \
    } else {                                                                         \
        cpu->address = address;                                                      \
        cpu->plane = plane;                                                          \
        deadline = mcs51_movx_write(cpu, clock, deadline, pc);                       \
    }                                                                                \
} while (0)

/* MOVX by R0 or R1: port 2 gives the upper half, as on an 8051 [guess]. */
#define PAGED (SFR(P2) << 8 | RN)
#define QUESTION_P2 do {                                                             \
    if (cpu->questioned[P2 - 0x80] && mcs51_question(cpu, pc, P2))                   \
        deadline = 0;                                                                \
} while (0)

/* -- the opcodes --------------------------------------------------------------------------------------- */

OP(00, )
OP_ADDR11_EVEN(1, next = TARGET11;)
OP_ADDR11_ODD(1, CALL(TARGET11);)
OP(02, next = WORD12;)
OP(12, CALL(WORD12);)
OP(22, RETURN;)
OP(32, RETURN; cpu->in_service &= cpu->in_service & 2 ? 1 : 0; cpu->hold = 1; deadline = 0;)

OP(03, A = A >> 1 | A << 7;)
OP(13, const uint8_t a = A; A = a >> 1 | CARRY << 7; SET_CARRY(a & 0x01);)
OP(23, A = A << 1 | A >> 7;)
OP(33, const uint8_t a = A; A = a << 1 | CARRY; SET_CARRY(a & 0x80);)

OP(04, A++;)
OP(05, const uint8_t at = BYTE1; WRITE(at, READ(at) + 1);)
OP_AT_RI(0, AT_RI++;)
OP_RN(0, RN++;)
OP(14, A--;)
OP(15, const uint8_t at = BYTE1; WRITE(at, READ(at) - 1);)
OP_AT_RI(1, AT_RI--;)
OP_RN(1, RN--;)

OP(10, const uint8_t bit = BYTE1; if (READ_BIT(bit)) { WRITE_BIT(bit, 0); BRANCH(BYTE2, 1); })
OP(20, BRANCH(BYTE2, READ_BIT(BYTE1));)
OP(30, BRANCH(BYTE2, !READ_BIT(BYTE1));)
OP(40, BRANCH(BYTE1, FLAGS & PSW_CY);)
OP(50, BRANCH(BYTE1, !(FLAGS & PSW_CY));)
OP(60, BRANCH(BYTE1, A == 0);)
OP(70, BRANCH(BYTE1, A != 0);)
OP(80, BRANCH(BYTE1, 1);)
OP(73, next = DATA_POINTER + A;)

OP(24, add(cpu, BYTE1, 0);)
OP(25, add(cpu, READ(BYTE1), 0);)
OP_AT_RI(2, add(cpu, AT_RI, 0);)
OP_RN(2, add(cpu, RN, 0);)
OP(34, add(cpu, BYTE1, CARRY);)
OP(35, add(cpu, READ(BYTE1), CARRY);)
OP_AT_RI(3, add(cpu, AT_RI, CARRY);)
OP_RN(3, add(cpu, RN, CARRY);)
OP(94, subtract(cpu, BYTE1);)
OP(95, subtract(cpu, READ(BYTE1));)
OP_AT_RI(9, subtract(cpu, AT_RI);)
OP_RN(9, subtract(cpu, RN);)
OP(84, divide(cpu);)
OP(A4, multiply(cpu);)
OP(D4, decimal_adjust(cpu);)

OP(42, const uint8_t at = BYTE1; WRITE(at, READ(at) | A);)
OP(43, const uint8_t at = BYTE1; WRITE(at, READ(at) | BYTE2);)
OP(44, A |= BYTE1;)
OP(45, A |= READ(BYTE1);)
OP_AT_RI(4, A |= AT_RI;)
OP_RN(4, A |= RN;)
OP(52, const uint8_t at = BYTE1; WRITE(at, READ(at) & A);)
OP(53, const uint8_t at = BYTE1; WRITE(at, READ(at) & BYTE2);)
OP(54, A &= BYTE1;)
OP(55, A &= READ(BYTE1);)
OP_AT_RI(5, A &= AT_RI;)
OP_RN(5, A &= RN;)
OP(62, const uint8_t at = BYTE1; WRITE(at, READ(at) ^ A);)
OP(63, const uint8_t at = BYTE1; WRITE(at, READ(at) ^ BYTE2);)
OP(64, A ^= BYTE1;)
OP(65, A ^= READ(BYTE1);)
OP_AT_RI(6, A ^= AT_RI;)
OP_RN(6, A ^= RN;)

OP(72, SET_CARRY(CARRY | READ_BIT(BYTE1));)
OP(82, SET_CARRY(CARRY & READ_BIT(BYTE1));)
OP(92, WRITE_BIT(BYTE1, FLAGS & PSW_CY);)
OP(A0, SET_CARRY(CARRY | !READ_BIT(BYTE1));)
OP(A2, SET_CARRY(READ_BIT(BYTE1));)
OP(B0, SET_CARRY(CARRY & !READ_BIT(BYTE1));)
OP(B2, const uint8_t bit = BYTE1; WRITE_BIT(bit, !READ_BIT(bit));)
OP(B3, FLAGS ^= PSW_CY;)
OP(C2, WRITE_BIT(BYTE1, 0);)
OP(C3, FLAGS &= ~PSW_CY;)
OP(D2, WRITE_BIT(BYTE1, 1);)
OP(D3, FLAGS |= PSW_CY;)

OP(74, A = BYTE1;)
OP(75, WRITE(BYTE1, BYTE2);)
OP_AT_RI(7, AT_RI = BYTE1;)
OP_RN(7, RN = BYTE1;)
OP(85, WRITE(BYTE2, READ(BYTE1));)
OP_AT_RI(8, WRITE(BYTE1, AT_RI);)
OP_RN(8, WRITE(BYTE1, RN);)
OP_AT_RI(A, AT_RI = READ(BYTE1);)
OP_RN(A, RN = READ(BYTE1);)
OP(E5, A = READ(BYTE1);)
OP_AT_RI(E, A = AT_RI;)
OP_RN(E, A = RN;)
OP(F5, WRITE(BYTE1, A);)
OP_AT_RI(F, AT_RI = A;)
OP_RN(F, RN = A;)
OP(90, SFR(DPH) = BYTE1; SFR(DPL) = BYTE2;)
OP(A3, SET_DATA_POINTER(DATA_POINTER + 1);)
OP(83, A = code[(uint16_t)(next + A)];)
OP(93, A = code[(uint16_t)(DATA_POINTER + A)];)

OP(B4, COMPARE_AND_BRANCH(A, BYTE1);)
OP(B5, COMPARE_AND_BRANCH(A, READ(BYTE1));)
OP_AT_RI(B, COMPARE_AND_BRANCH(AT_RI, BYTE1);)
OP_RN(B, COMPARE_AND_BRANCH(RN, BYTE1);)
OP(D5, const uint8_t at = BYTE1; const uint8_t left = READ(at) - 1; WRITE(at, left); BRANCH(BYTE2, left);)
OP_RN(D, BRANCH(BYTE1, --RN);)

/* PUSH SP stores the incremented SP, POP SP is not decremented afterwards: the order of the manual's text. */
OP(C0, SFR(SP)++; cpu->iram[SFR(SP)] = READ(BYTE1);)
OP(D0, const uint8_t value = pop(cpu); WRITE(BYTE1, value);)
OP(C4, A = A >> 4 | A << 4;)
OP(C5, const uint8_t at = BYTE1; const uint8_t value = READ(at); const uint8_t a = A; A = value; WRITE(at, a);)
OP_AT_RI(C, EXCHANGE(AT_RI);)
OP_RN(C, EXCHANGE(RN);)
OP_AT_RI(D, uint8_t *const at = &AT_RI; const uint8_t a = A, value = *at;
    A = (a & 0xF0) | (value & 0x0F); *at = (value & 0xF0) | (a & 0x0F);)

OP(E0, MOVX_READ(DATA_POINTER);)
NUMBERED(E2, 0, QUESTION_P2; MOVX_READ(PAGED);)
NUMBERED(E3, 1, QUESTION_P2; MOVX_READ(PAGED);)
OP(E4, A = 0;)
OP(F0, MOVX_WRITE(DATA_POINTER);)
NUMBERED(F2, 0, QUESTION_P2; MOVX_WRITE(PAGED);)
NUMBERED(F3, 1, QUESTION_P2; MOVX_WRITE(PAGED);)
OP(F4, A = ~A;)

/* The reserved opcode is not executed. */
OP(A5,
    cpu->stop_pc = next = pc;
    cpu->pending_stop = MCS51_ILLEGAL;
    clock -= CLOCKS_A5; instructions--; deadline = 0;)

#define ROW(h)                                                            \
    op_##h##0, op_##h##1, op_##h##2, op_##h##3, op_##h##4, op_##h##5, op_##h##6, op_##h##7, \
    op_##h##8, op_##h##9, op_##h##A, op_##h##B, op_##h##C, op_##h##D, op_##h##E, op_##h##F

static handler *const table[256] = {
    ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7),
    ROW(8), ROW(9), ROW(A), ROW(B), ROW(C), ROW(D), ROW(E), ROW(F),
};

/* -- in and out ---------------------------------------------------------------------------------------- */

static INSTRUCTION void leave(STATE)
{
    (void)code;
    (void)deadline;
    cpu->clock = clock;
    cpu->instructions = instructions;
    cpu->pc = pc;
}

void mcs51_execute(struct mcs51 *cpu, uint64_t deadline)
{
    const uint8_t *const code = cpu->code[SFR(CODE_BANK) & 1];
    table[code[cpu->pc]](cpu, code, cpu->clock, deadline, cpu->instructions, cpu->pc);
}
