/* Runs the waves of a dispatch: their registers, LDS, barriers, and the memory that they see.
 *
 * A wave's code is one host function (translate.py); each wave has a stack of its own and leaves it only at
 * a barrier, at its end, or when the owner (executor.py) must translate an address. Nothing returns to a
 * wave that has faulted: its stack is dropped.
 *
 * Memory is written in place. The first write to a 4 KiB page saves the page, every written byte is marked,
 * and waves_collect restores memory at the end and hands out what was written: the dispatch changes memory
 * when its virtual time is over, not before. Pages behind PCIe are copied into `pool` when first touched.
 */
#ifndef TOWLINE_WAVES_H
#define TOWLINE_WAVES_H

#include <stdint.h>

/* cffi begin */

enum {
    WAVES_LANES = 32,
    WAVES_VGPRS = 256,
    WAVES_SGPRS = 128,
    WAVES_EXTENTS = 4096,
    WAVES_GROUP = 32,            /* waves of the largest workgroup: 1024 work-items */
    WAVES_PAGE = 4096,
    WAVES_STACK = 4 << 20,       /* bytes of a wave's host stack; the owner protects the lowest page */
};

/* Why a dispatch ended. */
enum waves_outcome {
    WAVES_DONE,
    WAVES_PAGE_FAULT,            /* `fault_address`, `fault_write`, `fault_pc` */
    WAVES_WATCHDOG,              /* too many back-edges */
    WAVES_STUCK,                 /* every wave waits at a barrier that not all have signalled */
    WAVES_TRAP,                  /* s_trap; its number in `fault_address` */
    WAVES_JUMP,                  /* a jump to where no code was found; the target in `fault_address` */
    WAVES_TABLE_FULL,            /* more pieces of memory than WAVES_EXTENTS */
    WAVES_INTERRUPTED,           /* by SIGINT; the process's own handler has been called */
    WAVES_BUFFER,                /* a buffer's descriptor of a kind that is not implemented */
};

/* Read-modify-write operations; the order of `memory.ATOMICS`. */
enum waves_operation {
    WAVES_SWAP, WAVES_CMPSWAP, WAVES_ADD, WAVES_SUB, WAVES_RSUB, WAVES_SMIN, WAVES_UMIN, WAVES_SMAX,
    WAVES_UMAX, WAVES_AND, WAVES_OR, WAVES_XOR, WAVES_INC, WAVES_DEC, WAVES_SUB_CLAMP, WAVES_ADD_F32,
    WAVES_MIN_F32, WAVES_MAX_F32, WAVES_ADD_F64, WAVES_MIN_F64, WAVES_MAX_F64, WAVES_COND_SUB,
};

/* How a lane's address is meant. */
enum waves_space { WAVES_GLOBAL, WAVES_FLAT, WAVES_SCRATCH, WAVES_LDS };

/* Host memory that waves write in place. `old` is as large as the memory, `marks` an eighth of that. */
struct waves_memory {
    uint8_t *base;
    uint64_t size;
    uint8_t *old;                /* pages as they were */
    uint8_t *marks;              /* a bit for each byte written; zero between dispatches */
    uint64_t *saved;             /* a bit for each page in `old`; zero between dispatches */
};

/* Virtual addresses that lie in one piece of host memory. */
struct waves_extent {
    uint64_t start;
    uint64_t end;
    uint8_t *host;               /* where `start` is */
    struct waves_memory *memory;
    uint32_t writable;
};

/* The piece that an instruction used last; size 0: none. */
struct waves_site {
    uint64_t start;
    uint64_t size;               /* at most 2 GiB, so that offsets in it are positive 32-bit numbers */
    uint8_t *host;
};

/* A page that was saved. */
struct waves_page {
    uint64_t address;
    uint8_t *host;
    struct waves_memory *memory;
};

/* Bytes that were written, one after the other in the buffer. */
struct waves_write {
    uint64_t address;
    uint64_t size;
};

struct waves_run;

struct waves_wave {
    uint32_t vgpr[WAVES_VGPRS][WAVES_LANES];
    uint32_t sgpr[WAVES_SGPRS];
    uint32_t scc;
    uint32_t number;             /* in the workgroup */
    uint64_t scratch;            /* virtual address of its scratch memory */
    uint64_t phase;              /* of the barrier when it last signalled */
    struct waves_run *run;
    void *stack;                 /* its stack pointer while it does not run */
    uint32_t alive;
    uint32_t padding[5];         /* to a whole number of 64 bytes: vgpr is loaded as vectors */
};

struct waves_run {
    uint64_t *counts;            /* executions, by basic block */
    struct waves_site *sites;
    uint8_t *lds;
    uint32_t lds_size;
    uint32_t lds_bad;            /* lanes that left LDS, ever */
    uint64_t read;               /* bytes, of lanes from memory */
    uint64_t written;
    uint64_t code;               /* virtual address of the kernel */
    uint64_t budget;             /* back-edges of a wave */
    uint64_t least;              /* a wave with less of them left stops: 1, or all ones once interrupted */
    uint32_t shared_aperture;
    uint32_t private_aperture;

    /* The kernel, for waves with all lanes and for others, and its start values. */
    void (*full)(struct waves_wave *wave, struct waves_run *run);
    void (*partial)(struct waves_wave *wave, struct waves_run *run);
    uint32_t groups[3];
    uint32_t threads[3];
    uint32_t user_count;
    uint32_t user[WAVES_SGPRS];
    uint32_t generation;
    uint32_t group_ids;          /* gfx11: bits 0 to 2: workgroup id x, y, z in SGPRs; bit 3: size too */
    uint32_t item_ids;           /* components of the work-item id in v0, less one */
    uint32_t vgprs;              /* that are allocated to a wave */
    uint32_t garbage;            /* what uninitialised registers hold */
    uint64_t scratch;
    uint64_t scratch_wave;

    struct waves_wave *waves;    /* WAVES_GROUP of them */
    uint8_t *stacks;
    struct waves_wave *current;
    void *main_stack;
    uint32_t alive;              /* waves of the workgroup that have not ended */
    uint32_t signalled;
    uint64_t phase;
    uint64_t waves_started;

    struct waves_extent *extents;    /* sorted */
    uint32_t extent_count;
    uint32_t last_extent;
    struct waves_page *pages;
    uint64_t page_count;

    /* Translate an address: add its extent with waves_add and return 0; anything else is a fault. */
    int (*translate)(uint64_t address, int write);
    int request;                 /* what a wave stopped for */
    int outcome;
    uint64_t fault_address;
    uint32_t fault_write;
    int64_t fault_pc;            /* from the kernel's entry */

    uint32_t backwards;          /* last workgroup and last wave first: what depends on the order is a race */
};

/* Run a dispatch whose fields are set; returns `outcome`. An interrupted one leaves memory as it was. */
int waves_dispatch(struct waves_run *run);
/* Add an extent, joined to its neighbours where they are contiguous. 0: the table is full. */
int waves_add(struct waves_run *run, uint64_t start, uint64_t end, uint8_t *host, struct waves_memory *memory,
              int writable);
/* Number of runs of written bytes, and their size in all. */
uint64_t waves_written(struct waves_run *run, uint64_t *bytes);
/* List them in order of address, and restore memory. */
void waves_collect(struct waves_run *run, struct waves_write *writes, uint8_t *data);
/* Only restore memory. */
void waves_take_back(struct waves_run *run);

/* Called by translated code; `pc` counts from the kernel's entry, `size` is bytes of a lane. */
void waves_load(struct waves_run *run, struct waves_site *site, const uint64_t *addresses, uint32_t lanes,
                int size, int space, int64_t pc, uint32_t *out);
void waves_store(struct waves_run *run, const uint64_t *addresses, uint32_t lanes, int size, int space,
                 int64_t pc, const uint32_t *data);
void waves_atomic(struct waves_run *run, const uint64_t *addresses, uint32_t lanes, int size, int space,
                  int64_t pc, int operation, const uint32_t *data, const uint32_t *compare, uint32_t *out);
void waves_scalar_load(struct waves_run *run, struct waves_site *site, uint64_t address, int size, int64_t pc,
                       uint32_t *out);
void waves_signal(struct waves_run *run);
void waves_wait(struct waves_run *run, int64_t pc);
void waves_stop(struct waves_run *run, int outcome, int64_t pc, uint64_t value);

/* cffi end */

#endif
