/* The PCIe TLP engine's fast path: launches, raw memory behind BARs, and the one place where a completion is
 * latched into the registers.
 *
 * The engine runs in the CPU core's loop as its native device. A launch whose address lies in one of
 * `ranges` is carried out here; any other is decoded, and left to the owner (tlp.py), who routes it through
 * the fabric and hands the outcome back with tlp_answer. Addresses and bits: firmware/asm2464pd/registers/
 * tlp.py; tlp.c repeats them as offsets, and the tests hold it to them.
 */
#ifndef TOWLINE_TLP_H
#define TOWLINE_TLP_H

#include <stdint.h>

#include "../mcs51/mcs51.h"

/* cffi begin */

enum { TLP_RANGES = 32 };

/* What the owner is asked to do; tlp_write and tlp_tick return it. */
enum tlp_reason {
    TLP_NOTHING,
    TLP_ROUTE,    /* a request is in `request`: route it, then tlp_answer if it is not posted */
    TLP_CHANGED,  /* registers changed, and `notify` is set */
    TLP_UNKNOWN,  /* `code` was written to the launch register, and is unknown */
};

/* Memory that answers without side effects, at PCIe address `base`. */
struct tlp_range {
    uint64_t base;
    uint64_t size;
    uint8_t *memory;
    uint16_t completer;      /* bus << 8 | device << 3 | function */
};

/* The request as launched. */
struct tlp_request {
    uint64_t clock;
    uint64_t address;        /* bits 1:0 as written; 32 bits unless fmt_type says 64 */
    uint8_t fmt_type;
    uint8_t enables;         /* first dword byte enables, bit 0 the lowest address */
    uint8_t last_enables;
    uint8_t tag;
    uint16_t length;         /* dwords, as written (0 to 1023) */
    uint16_t requester;
    uint8_t data[4];         /* in memory order */
    uint8_t posted;
};

/* The outcome of a non-posted request. */
struct tlp_completion {
    uint8_t arrived;         /* 0: none came; the engine's time-out raises ERROR */
    uint8_t status;          /* completion status field */
    uint8_t has_data;
    uint8_t tag;
    uint8_t lower_address;
    uint8_t data[4];
    uint16_t byte_count;
    uint16_t completer;
    uint16_t requester;
};

struct tlp {
    struct mcs51_device device;
    uint8_t *page;                   /* storage of XDATA 0xB200 to 0xB2FF */
    uint64_t round_trip;             /* clocks from launch to completion of what is served here */
    uint8_t up;                      /* TLPs reach the fabric */
    uint8_t notify;                  /* report every change of a register */
    uint8_t outstanding;             /* a non-posted request awaits `pending` at device.due */
    uint8_t code;                    /* last value written to the launch register */
    uint32_t range_count;
    uint64_t served;                 /* requests carried out here, since power-on */
    struct tlp_request request;
    struct tlp_completion pending;
    struct tlp_range ranges[TLP_RANGES];
};

/* Make an engine of a zeroed structure, on its registers' storage. */
void tlp_init(struct tlp *engine, uint8_t *page, uint64_t round_trip);
/* The core's callbacks; see struct mcs51_device. */
int tlp_write(void *engine, uint64_t clock, uint16_t address, uint8_t value);
int tlp_tick(void *engine, uint64_t clock);
/* Fill in the header fields of a completion that follow from its request. */
void tlp_describe(const struct tlp_request *request, struct tlp_completion *completion);
/* The completion of the outstanding request arrives at clock `due`. */
void tlp_answer(struct tlp *engine, uint64_t due, const struct tlp_completion *completion);
/* A completion arrives now, whether or not a request waits for it. */
void tlp_latch(struct tlp *engine, const struct tlp_completion *completion);
/* Give up the outstanding request. */
void tlp_abandon(struct tlp *engine);

/* cffi end */

#endif
