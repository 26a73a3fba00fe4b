#include "execute.h"

#include "block.h"
#include "bulk.h"
#include "bytes.h"
#include "fetch.h"
#include "job.h"
#include "result.h"
#include "slots.h"
#include "timer.h"
#include "tlp.h"

enum {
    DONE = RESULT_TRAILER_CAUSE_DONE,
    NO_COMPLETION = RESULT_TRAILER_CAUSE_NO_COMPLETION,
    CONDITION_TIMEOUT = RESULT_TRAILER_CAUSE_CONDITION_TIMEOUT,
    LINK_DOWN = RESULT_TRAILER_CAUSE_LINK_DOWN,
    BAD_OPCODE = RESULT_TRAILER_CAUSE_BAD_OPCODE,
    BAD_OPERAND = RESULT_TRAILER_CAUSE_BAD_OPERAND,
    BAD_PAYLOAD = RESULT_TRAILER_CAUSE_BAD_PAYLOAD,
};
enum {
    MEMORY_READ = TLP_FMT_TYPE_KIND_MRD32,
    MEMORY_WRITE = TLP_FMT_TYPE_KIND_MWR32,
};
#define SIGN 0x80000000ul
#define LINK_IS_UP (PCIE_LINK_STATUS & PCIE_LINK_STATUS_UP)

u16 execute_index;

static volatile __xdata u8 *operation;
static u8 wide;                 /* the bit of TLP_FMT_TYPE for a 64-bit address */
static u16 left;                /* of the operation's count */
static u16 number;              /* of the next packet of payload */
static __xdata u8 packet[8];    /* the same as an address; its upper bytes are never written */

static u16 end;                 /* where the list's trailer is */
static volatile __xdata u8 *loop_operation;
static u16 loop_rounds, loop_index;
static __bit unread;            /* the host has not yet reported the sectors of a SLOT_IN as read */

#define VALUE (operation + OPERATION_VALUE_OFFSET)
#define MASK (OPERATION_SIZE + EXTENSION_MASK_OFFSET - OPERATION_VALUE_OFFSET) /* from VALUE */
#define TIMEOUT (operation + OPERATION_SIZE + EXTENSION_TIMEOUT_OFFSET)
#define PLANE (TLP_ADDRESS_2 & CPU_DPX_PLANE)

static u16 address(void)
{
    return load16_reversed(&TLP_ADDRESS_1);
}

static u8 is_a_time(volatile __xdata u8 *microseconds)
{
    return microseconds[3] < LIST_MICROSECONDS >> 24;
}

/* -- one dword ------------------------------------------------------------------------------------------ */

static u8 request(u8 format)
{
    TLP_FMT_TYPE = format;
    tlp_launch();
    return tlp_wait();
}

static u8 read_dword(void)
{
    return request(MEMORY_READ | wide);
}

static u8 write_dword(void)
{
    return request(MEMORY_WRITE | wide);
}

static u8 give(u8 cause)
{
    if (cause == DONE) {
        result_room();
        block_store();
    }
    return cause;
}

/* block_writes does the well-formed ones. */
static u8 write(void)
{
    return LINK_DOWN;
}

static u8 read(void)
{
    return give(read_dword());
}

/* TLP_DATA has its bytes in descending order. */
static u8 modify(void)
{
    volatile __xdata u8 *data = &TLP_DATA_0;
    volatile __xdata u8 *value = VALUE;
    u8 cause = read_dword();
    u8 i, mask;

    if (cause != DONE)
        return cause;
    for (i = 4; i; i--) {
        mask = value[MASK];
        *data = *data & ~mask | *value++ & mask;
        data--;
    }
    return write_dword();
}

static u8 data_matches(void)
{
    volatile __xdata u8 *data = &TLP_DATA_0;
    volatile __xdata u8 *value = VALUE;
    u8 i;

    for (i = 4; i; i--) {
        if ((*data-- ^ *value) & value[MASK])
            return 0;
        value++;
    }
    return 1;
}

static u8 poll_cause;
/* At a fence between two at the time. */
enum { LOOKS = 16 };

/* A device may write the dword of a fence while its bytes are read: so it must be reached twice. */
static u8 reached(void)
{
    return !((load32(SRAM_WINDOW + address()) - load32(VALUE)) & SIGN);
}

/* Whether the condition of the operation is met, or cannot be met any more. A fence must be seen soon: the time
 * between two looks is part of the next transfer's. */
static u8 look(void)
{
    u8 looks = LOOKS;

    if (*operation == OPCODE_FENCE) {
        do {
            if (reached())
                return reached();
        } while (--looks);
        return 0;
    }
    poll_cause = read_dword();
    return poll_cause != DONE || data_matches();
}

/* Check until it is met or the time is up, and then once more. */
static u8 poll(void)
{
    u8 over;

    if (look())
        return DONE;
    if (!is_a_time(TIMEOUT))
        return BAD_OPERAND;
    deadline_set(load32(TIMEOUT));
    do {
        over = GIVEN_UP || deadline_over();
        if (look())
            return DONE;
    } while (!over);
    return CONDITION_TIMEOUT;
}

/* The dword that was read last is in the result even if it is not the right one. */
static u8 poll_dword(void)
{
    u8 cause;

    poll_cause = BAD_OPERAND;
    cause = poll();
    if (give(poll_cause) != DONE)
        return poll_cause;
    return cause;
}

/* Bus 0 is that of our root port: devices behind it need requests of type 1. */
static u8 config(u8 format)
{
    if (TLP_ADDRESS_3)
        format += TLP_FMT_TYPE_KIND_CFGRD1 - TLP_FMT_TYPE_KIND_CFGRD0;
    return request(format);
}

static u8 config_write(void)
{
    return config(TLP_FMT_TYPE_KIND_CFGWR0);
}

static u8 config_read(void)
{
    return give(config(TLP_FMT_TYPE_KIND_CFGRD0));
}

/* -- blocks --------------------------------------------------------------------------------------------- */

/* Dwords to take from a packet: those it has, up to the number still needed. */
static u8 write_payload(u8 step)
{
    u8 dwords;

    block_step = step;
    TLP_FMT_TYPE = MEMORY_WRITE | wide;
    for (number = 0; left; number++) {
        if (!list_take_packet())
            return NO_COMPLETION;
        if (!LINK_IS_UP)
            return LINK_DOWN;
        dwords = (u8)(bulk_received() >> 2) - 1;
        if (bulk_received() < PAYLOAD_HEADER_SIZE + 4 || load16(BULK_OUT_BUFFER) != number)
            return BAD_PAYLOAD;
        if (left < dwords)
            dwords = (u8)left;
        left -= dwords;
        if (block_write(dwords))
            return BAD_PAYLOAD;
    }
    return DONE;
}

static u8 block_out(void)
{
    return write_payload(4);
}

static u8 fifo_out(void)
{
    return write_payload(0);
}

/* The packet of payload with number 0 and no dwords, so its checksum is 0. */
static u8 sync(void)
{
    unread = 0;
    number = 0;
    if (!list_take_packet())
        return NO_COMPLETION;
    return bulk_received() < PAYLOAD_HEADER_SIZE || load32(BULK_OUT_BUFFER) ? BAD_PAYLOAD : DONE;
}

static u8 read_block(u8 step)
{
    u16 dwords, rest;

    block_step = step;
    TLP_FMT_TYPE = MEMORY_READ | wide;
    while (left) {
        dwords = result_room() + 1;
        if (GIVEN_UP)
            return NO_COMPLETION;
        if (dwords > left)
            dwords = left;
        rest = fetch(dwords);
        left -= dwords - rest;
        if (rest)
            return fetch_cause;
    }
    return DONE;
}

static u8 block_in(void)
{
    return read_block(4);
}

static u8 fifo_in(void)
{
    return read_block(0);
}

/* The value is written to the engine each time: a late completion may have replaced it. */
static u8 fill(void)
{
    volatile __xdata u8 *data, *value;
    u8 i;

    for (; left; left--) {
        if (GIVEN_UP)
            return NO_COMPLETION;
        if (!LINK_IS_UP)
            return LINK_DOWN;
        data = &TLP_DATA_0;
        value = VALUE;
        for (i = 4; i; i--)
            *data-- = *value++;
        write_dword();
        tlp_next_dword();
    }
    return DONE;
}

/* -- the bridge itself ---------------------------------------------------------------------------------- */

static u8 delay(void)
{
    if (!is_a_time(VALUE))
        return BAD_OPERAND;
    wait_us(load32(VALUE));
    return DONE;
}

/* With the other plane selected every MOVX goes there: the byte is kept in a register. */
static u8 xdata_write(void)
{
    volatile __xdata u8 *at = XDATA(address());
    u8 byte = TLP_DATA_0;

    CPU_DPX = PLANE;
    *at = byte;
    CPU_DPX = CPU_DPX_PLANE_XDATA;
    return DONE;
}

static u8 xdata_read(void)
{
    volatile __xdata u8 *at = XDATA(address());
    u8 plane = PLANE;
    u8 byte, i;

    while (left) {
        result_room();
        if (GIVEN_UP)
            return NO_COMPLETION;
        for (i = 4; i; i--) {
            byte = 0;
            if (left) {
                CPU_DPX = plane;
                byte = *at++;
                CPU_DPX = CPU_DPX_PLANE_XDATA;
                left--;
            }
            *block_place++ = byte;
        }
    }
    return DONE;
}

/* slots_arm takes the lowest byte of slot and count, and 15 bits of the number of sectors. */
static u8 is_beyond_slots(void)
{
    u8 beyond = HIGH(left);

    beyond |= PLANE;
    beyond |= TLP_ADDRESS_1;
    beyond |= TLP_DATA_1 & HIGH(SLOTS_TO_HOST);
    beyond |= TLP_DATA_2;
    beyond |= TLP_DATA_3;
    return beyond;
}

static u8 arm_slots(u8 first, u16 sectors)
{
    u8 cause = BAD_OPERAND;

    HOLD;
    if (!GIVEN_UP && slots_arm(first, (u8)left, sectors))
        cause = DONE;
    RELEASE;
    return cause;
}

static u8 slot_out(void)
{
    return is_beyond_slots() ? BAD_OPERAND : arm_slots(TLP_ADDRESS_0, load16(VALUE));
}

/* The link is idle from when the host has read the sectors of the SLOT_IN before until the device learns that
 * this one is armed. So a WRITE behind it, which notifies the device, is prepared first, unless a late
 * completion may replace its value. */
static u8 slot_in(void)
{
    volatile __xdata u8 *next = block_operation;
    u8 first = TLP_ADDRESS_0;
    u16 sectors = load16(VALUE) | SLOTS_TO_HOST;
    u8 cause = DONE;
    u8 tells = 0;

    if (is_beyond_slots())
        return BAD_OPERAND;
    if (*next == OPCODE_WRITE && end - (u16)next >= OPERATION_SIZE && !tlp_guarded) {
        TLP_FMT_TYPE = MEMORY_WRITE | block_load();
        tells = !block_misfit;
    }
    if (unread)
        cause = sync();
    unread = 1;
    if (cause == DONE)
        cause = arm_slots(first, sectors);
    if (cause == DONE && tells && LINK_IS_UP) {
        tlp_launch();
        execute_index++;
    } else {
        block_operation = next;
    }
    return cause;
}

/* In a loop, the value rises by the mask, which follows it, for the next round. */
static u8 fence(void)
{
    u8 cause;

    if (PLANE || address() & 3 || address() >= SRAM_WINDOW_SIZE)
        return BAD_OPERAND;
    cause = poll();
    if (cause == DONE)
        add32(VALUE);
    return cause;
}

static u8 loop(void)
{
    if (loop_rounds || !left)
        return BAD_OPERAND;
    loop_rounds = left;
    loop_operation = block_operation;
    loop_index = execute_index;
    return DONE;
}

static u8 end_loop(void)
{
    if (!loop_rounds)
        return BAD_OPERAND;
    if (--loop_rounds) {
        block_operation = loop_operation;
        execute_index = loop_index;
    }
    return DONE;
}

/* -- the list ------------------------------------------------------------------------------------------- */

/* A function for each opcode. It finds address and value of the operation in the TLP engine, whose registers
 * can be read back, and the count in `left`; `operation` points to it, block_operation behind its extension.
 * Returns a cause. */
static u8 (*const __code runs[])(void) = {
    [OPCODE_WRITE] = write,
    [OPCODE_READ] = read,
    [OPCODE_MODIFY] = modify,
    [OPCODE_POLL] = poll_dword,
    [OPCODE_CONFIG_WRITE] = config_write,
    [OPCODE_CONFIG_READ] = config_read,
    [OPCODE_BLOCK_WRITE] = block_out,
    [OPCODE_FIFO_WRITE] = fifo_out,
    [OPCODE_BLOCK_READ] = block_in,
    [OPCODE_FIFO_READ] = fifo_in,
    [OPCODE_FILL] = fill,
    [OPCODE_DELAY] = delay,
    [OPCODE_XDATA_WRITE] = xdata_write,
    [OPCODE_XDATA_READ] = xdata_read,
    [OPCODE_SLOT_OUT] = slot_out,
    [OPCODE_SLOT_IN] = slot_in,
    [OPCODE_FENCE] = fence,
    [OPCODE_LOOP] = loop,
    [OPCODE_END] = end_loop,
    [OPCODE_SYNC] = sync,
};

/* Bytes of the operation with its extension; and the flag TLP, if address and enables must fit a request. */
enum { PLAIN = OPERATION_SIZE, EXTENDED = OPERATION_SIZE + EXTENSION_SIZE, TLP = 1 };
static const __code u8 sizes[] = {
    [OPCODE_WRITE] = PLAIN | TLP,
    [OPCODE_READ] = PLAIN | TLP,
    [OPCODE_MODIFY] = EXTENDED | TLP,
    [OPCODE_POLL] = EXTENDED | TLP,
    [OPCODE_CONFIG_WRITE] = PLAIN | TLP,
    [OPCODE_CONFIG_READ] = PLAIN | TLP,
    [OPCODE_BLOCK_WRITE] = PLAIN | TLP,
    [OPCODE_FIFO_WRITE] = PLAIN | TLP,
    [OPCODE_BLOCK_READ] = PLAIN | TLP,
    [OPCODE_FIFO_READ] = PLAIN | TLP,
    [OPCODE_FILL] = PLAIN | TLP,
    [OPCODE_DELAY] = PLAIN,
    [OPCODE_XDATA_WRITE] = PLAIN,
    [OPCODE_XDATA_READ] = PLAIN,
    [OPCODE_SLOT_OUT] = PLAIN,
    [OPCODE_SLOT_IN] = PLAIN,
    [OPCODE_FENCE] = EXTENDED,
    [OPCODE_LOOP] = PLAIN,
    [OPCODE_END] = PLAIN,
    [OPCODE_SYNC] = PLAIN,
};

/* An operation that is not a request has an address of 16 bits and the plane, or less. */
static u8 is_beyond_planes(void)
{
    return wide | TLP_ADDRESS_3 | TLP_ADDRESS_2 & (u8)~CPU_DPX_PLANE;
}

static u8 run_one(void)
{
    u8 opcode = *operation;
    u8 size;

    if (opcode >= sizeof sizes)
        return BAD_OPCODE;
    size = sizes[opcode];
    wide = block_load();
    block_operation = operation + (size & (u8)~TLP);
    if (!size || (u16)block_operation > end)
        return BAD_OPCODE;
    if (size & TLP ? block_misfit : is_beyond_planes())
        return BAD_OPERAND;
    left = load16(operation + OPERATION_COUNT_OFFSET);
    return runs[opcode]();
}

/* For INFO and the result. */
static void report(u8 cause)
{
    list_failure.cause = cause;
    list_failure.opcode = *operation;
    list_failure.index = execute_index;
    packet[0] = LOW(number);
    packet[1] = HIGH(number);
    copy_bytes(list_failure.address, cause == BAD_PAYLOAD ? packet : operation + OPERATION_ADDRESS_OFFSET,
               sizeof list_failure.address);
}

u8 execute(volatile __xdata u8 *after)
{
    u8 cause = DONE;
    u8 done;
    u16 room;

    end = (u16)after;
    execute_index = 0;
    loop_rounds = 0;
    unread = 0;
    while ((u16)block_operation != end) {
        if (GIVEN_UP)
            return NO_COMPLETION;
        operation = block_operation;
        if (*operation == OPCODE_WRITE && LINK_IS_UP) {
            room = (end - (u16)operation) / OPERATION_SIZE;
            done = room ? block_writes(HIGH(room) ? 255 : LOW(room)) : 0;
            execute_index += done;
            if (done)
                continue;
        }
        cause = run_one();
        if (cause != DONE)
            break;
        execute_index++;
    }
    if (cause == DONE && loop_rounds)
        cause = BAD_OPERAND;
    if (cause != DONE) {
        HOLD;
        report(cause);
        RELEASE;
    }
    return cause;
}
