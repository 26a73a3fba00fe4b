/* The 8051 core of the emulator: an MCS-51 with one clock a machine cycle, banked CODE (SFR 0x96) and a
 * second MOVX plane (SFR 0x93, "DPX").
 *
 * The core runs until a clock, and stops early where the rest of the chip has a say. It calls nothing: a stop
 * leaves the reason in the structure, the owner acts and runs on. Storage and flags of the MOVX planes belong
 * to the bus (emulator/core/bus.py); a byte without flags is read and written here at full speed.
 *
 * Python reads this header through cffi: between the two markers are declarations only, no preprocessor.
 */
#ifndef TOWLINE_MCS51_H
#define TOWLINE_MCS51_H

#include <stdint.h>

/* cffi begin */

/* Flags of a MOVX byte; bus.py has the same. */
enum mcs51_flag {
    MCS51_READ_CALLS = 0x01,
    MCS51_WRITE_CALLS = 0x02,
    MCS51_WRITE_IGNORED = 0x04,
    MCS51_WRITE_CLEARS = 0x08,
    MCS51_UNINITIALISED = 0x10,
    MCS51_NATIVE = 0x20,
};

/* Why mcs51_run returned. */
enum mcs51_stop {
    MCS51_UNTIL,         /* the clock was reached */
    MCS51_READ,          /* MOVX read of a READ_CALLS byte: put the value in ACC, run on */
    MCS51_WRITE,         /* MOVX write of a WRITE_CALLS byte: `value` is what was written */
    MCS51_NATIVE_STOP,   /* the native device wants its owner: `device_reason` */
    MCS51_SERIAL,        /* SBUF was written: `value` leaves the serial port */
    MCS51_ILLEGAL,       /* opcode 0xA5 */
    MCS51_BREAKPOINT,    /* instrumented: about to execute a marked address */
    MCS51_STACK,         /* guard: the stack wrapped past 0xFF, or went below its start */
    MCS51_ERASED,        /* guard: executing code that was not loaded */
    MCS51_CLOBBERED,     /* guard: RETI with registers other than at interrupt entry; `value`: which */
    MCS51_UNINIT,        /* guard: MOVX read of RAM never written; the read has happened */
    MCS51_SFR,           /* a questioned special function register, `asked`, was accessed */
    MCS51_WATCHED,       /* instrumented: an instruction has touched watched bytes: `watches` says which */
    MCS51_CALLED,        /* instrumented: `calls` is nearly full; empty it and run on */
    MCS51_SPINNING,      /* a proven spin loop that reads MOVX bytes has run for `spin.limit` clocks; once for each */
};

/* What a watched byte is watched for, and where `watches` has the special function registers: IRAM is at its
 * address, a register at MCS51_WATCH_SFR + its direct address. What was done to a byte is shifted by
 * MCS51_WATCH_DONE. */
enum mcs51_watch {
    MCS51_WATCH_WRITE = 0x01,
    MCS51_WATCH_READ = 0x02,
    MCS51_WATCH_DONE = 4,
    MCS51_WATCH_SFR = 0x100,
};

/* What `calls` records: how control left one function for another, and what registers changed. */
enum mcs51_call_kind {
    MCS51_CALL,          /* LCALL, ACALL */
    MCS51_JUMP,          /* to one of `entries` in any other way */
    MCS51_RETURN,        /* RET */
    MCS51_RETI,
    MCS51_INTERRUPT,     /* taken by hardware */
    MCS51_RESET,
    MCS51_SKIP,          /* a proven spin loop is skipped from here ... */
    MCS51_SKIPPED,       /* ... to here */
    MCS51_REGISTER,      /* one of `shown` has changed: `at` is its address, `sp` its value */
};

enum mcs51_calls {
    MCS51_CALLS = 65536, /* entries of `calls` */
};

struct mcs51_call {
    uint64_t clock;              /* after it */
    uint32_t at;                 /* where it went: bank << 16 | address; the common half is bank 0 */
    uint8_t kind;                /* enum mcs51_call_kind */
    uint8_t sp;                  /* SP after it; of RET and RETI, before */
    uint16_t reserved;
};

/* A device that runs in the core's own loop: the PCIe TLP engine. */
struct mcs51_device {
    void *self;
    /* A write to a NATIVE byte at cpu->clock. Nonzero: stop with MCS51_NATIVE_STOP and that reason. */
    int (*write)(void *self, uint64_t clock, uint16_t address, uint8_t value);
    /* Time has reached `due`. Nonzero: stop, as above. */
    int (*tick)(void *self, uint64_t clock);
    /* The clock at which tick wants to be called; UINT64_MAX if never. The device keeps it. */
    uint64_t due;
};

enum mcs51_spins {
    MCS51_SPIN_READS = 8,    /* different MOVX bytes of a loop that are kept */
    MCS51_SPIN_LENGTH = 256, /* the most instructions of a loop that is proven */
};

/* The spin loop that was proven last: nothing changes from round to round but the clock. It counts as the same
 * loop over interrupts, as long as it takes most of the time. */
struct mcs51_spin {
    uint64_t limit;              /* clocks after which to stop with MCS51_SPINNING; 0: never */
    uint64_t since;              /* clock at which it was proven first */
    uint64_t seen;               /* clock up to which it has been proven */
    uint64_t spent;              /* clocks of that time that it took */
    uint32_t at;                 /* its lowest address: bank << 16 | address */
    uint8_t in_service;          /* as of the CPU, while it runs */
    uint8_t stopped;             /* MCS51_SPINNING has been returned for it */
    uint8_t read_count;          /* of `reads` */
    uint8_t too_many;            /* it reads more bytes than are kept */
    uint32_t reads[8];           /* MOVX bytes that it reads: plane << 16 | address, in order */
    uint32_t length;             /* instructions of a round */
    uint32_t trail[256];         /* where they are, in order: bank << 16 | address */
};

/* What an interrupt handler must leave as it found it: saved at entry, compared at RETI by the guard. */
struct mcs51_saved {
    uint8_t registers[15];       /* ACC, B, PSW, DPL, DPH, DPX, R0 to R7 of its bank, SP */
    uint8_t bank;                /* IRAM address of that bank's R0 */
};

struct mcs51 {
    uint64_t clock;              /* chip clocks since power-on */
    uint64_t instructions;       /* executed since power-on */
    uint64_t skipped;            /* clocks skipped in proven spin loops (counted in clock too) */
    uint16_t pc;
    uint8_t iram[256];
    uint8_t sfr[128];            /* 0x80..0xFF, at index address - 0x80; directly behind iram */

    /* The stop. */
    uint16_t stop_pc;            /* address of the instruction that stopped */
    uint16_t address;            /* MOVX address */
    uint8_t plane;               /* 0 XDATA, 1 PHY (DPX) */
    uint8_t value;
    uint8_t asked;               /* address of a special function register */
    int device_reason;

    /* Memory, owned by others. */
    const uint8_t *code[2];      /* as seen with CODE bank 0 and 1: 64 KiB, and its first two bytes again */
    uint8_t *page[2][256];       /* storage of the planes, by 256-byte page */
    uint8_t *flags[2];           /* 64 KiB each */
    struct mcs51_device *device; /* may be null */

    /* Interrupts. */
    uint8_t line[2];             /* levels of INT0 and INT1, 1 = asserted (the pin is low) */
    uint8_t in_service;          /* bit 0: a low-priority handler runs; bit 1: a high-priority one */

    /* Instrumentation; a core with none of it runs at full speed. Tables are by bank and address of the
     * instruction; addresses below 0x8000 have the same code in both banks and count as bank 0. */
    uint64_t *profile;           /* [2][65536] clocks, or null */
    const uint8_t *marks;        /* [2][65536] nonzero: stop before executing (breakpoints), or null */
    const uint8_t *loaded;       /* [2][65536] nonzero: code is there (guard), or null */
    uint8_t *covered;            /* [2][65536] bit 0 executed, 1 branch taken, 2 not taken, or null */
    struct mcs51_call *calls;    /* [MCS51_CALLS], or null: record calls, returns and interrupts (calls.c) */
    uint32_t call_count;         /* of them so far; the owner sets it to 0 when it has taken them */
    const uint8_t *entries;      /* [2][65536] nonzero: a function begins there, while `calls` is set */
    uint8_t shown_count;         /* of `shown` */
    uint8_t shown[128];          /* addresses of special function registers whose changes are recorded */
    uint8_t known[128];          /* their values as recorded last */
    uint8_t *watches;            /* [512] enum mcs51_watch by place, or null (watchpoints) */
    uint8_t watch_hit;           /* MCS51_WATCHED is pending; cleared together with what was done */
    uint8_t guard_stack;         /* switch */
    uint8_t stack_floor;         /* SP may not go below this; 0: not known, the next write to SP sets it */
    uint8_t guard_interrupts;    /* switch: compare registers at RETI */
    uint8_t guard_uninit;        /* switch: honour MCS51_UNINITIALISED */
    uint8_t questioned[128];     /* by register, nonzero: stop with MCS51_SFR at an access by direct address or bit;
                                  * for P2 at MOVX by R0 or R1 too. Works for P2 and for registers that the core
                                  * gives no meaning to; the owner clears what it has seen */
    uint8_t resume;              /* the next instruction is not stopped at again (after BREAKPOINT, ERASED) */
    uint8_t skip;                /* switch: skip spin loops that are proven to be fixed points */

    /* The core's own. */
    uint8_t hold;                /* one instruction has to pass before the next interrupt */
    uint8_t pending_stop;        /* enum mcs51_stop to return once the instruction is over; 0: none */
    uint8_t impure;              /* a special function register was touched that is more than storage */
    uint64_t timer_count;        /* counts of 12 clocks that the timers have seen */
    uint64_t timer_due;          /* clock of the next timer overflow */
    uint64_t probe_due;          /* clock at which to look for a spin loop */
    uint64_t probe_gap;
    struct mcs51_spin spin;
    struct mcs51_saved saved[2]; /* by priority */
};

/* Power-on reset: registers, timers and interrupts; clock, memory and instrumentation stay. */
void mcs51_reset(struct mcs51 *cpu);
/* Run until `until` clocks or a stop; returns an enum mcs51_stop. At least one instruction is executed or one
 * interrupt taken if the clock is below `until`; the last instruction may end a few clocks past it. */
int mcs51_run(struct mcs51 *cpu, uint64_t until);
/* Drive INT0 or INT1 at cpu->clock. */
void mcs51_line(struct mcs51 *cpu, int number, int level);
/* Bring the registers that are computed on demand, P and the timers', up to cpu->clock, for a reader of
 * sfr from outside. */
void mcs51_settle(struct mcs51 *cpu);
/* A byte arrives at the serial port: SBUF and RI. As on the chip, it is lost unless REN is set and RI clear. */
void mcs51_receive(struct mcs51 *cpu, uint8_t value);

/* cffi end */

#endif
