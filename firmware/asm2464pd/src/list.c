#include "list.h"

#include "block.h"
#include "bulk.h"
#include "bytes.h"
#include "execute.h"
#include "job.h"
#include "result.h"
#include "timer.h"

/* A list is stored behind the linker's XRAM (Makefile), at the start of a page: block_copy needs that. */
#define LIST XDATA(0x1000)

__xdata struct list_failure list_failure;
__xdata u16 list_sequence;

static volatile __bit is_open;
static volatile __bit arrived;          /* a packet waits in the bulk buffer */
static volatile u8 generation;          /* of list mode; changes when it is opened */
static volatile __xdata u16 first_sequence;

static u8 begun;                        /* the generation that main works on */
static __bit dropping;                  /* packets, until one begins the expected list */
static u16 expected;                    /* the next sequence number */
static u16 rest;                        /* bytes still to come of the list; 0: no list is being received */
static u8 page;                         /* their destination */

/* -- the handler ---------------------------------------------------------------------------------------- */

static void out_event(void)
{
    arrived = 1;
}

static void in_event(void)
{
    result_taken = 1;
}

static void stop(void)
{
    is_open = 0;
}

void list_open(u16 number)
{
    bulk_on_out(out_event);
    bulk_on_in(in_event);
    bulk_on_stop(stop);
    first_sequence = number;
    arrived = 0;
    is_open = 1;
    generation++;
}

void list_close(void)
{
    if (is_open)
        bulk_release();
}

/* -- main ----------------------------------------------------------------------------------------------- */

/* Take the packet that has arrived, unless list mode was left or opened again since. */
static u8 take(void)
{
    u8 taken = 0;

    HOLD;
    if (arrived && !GIVEN_UP) {
        arrived = 0;
        taken = 1;
    }
    RELEASE;
    return taken;
}

u8 list_take_packet(void)
{
    u8 looks = 0;

    bulk_continue_out();
    for (;;) {
        while (!arrived && --looks)
            ;
        if (take())
            return 1;
        if (GIVEN_UP)
            return 0;
        result_poll();
        timer_poll();
    }
}

static void put(u16 word)
{
    *block_place++ = LOW(word);
    *block_place++ = HIGH(word);
}

/* `done` is the number of operations done; if the list failed, list_failure has the rest. */
static void answer(u8 cause, u16 sequence, u16 done)
{
    u8 i;

    dropping = cause != 0;
    put(RESULT_TRAILER_MAGIC_FIXED);
    put(sequence);
    put(0);
    put(done);
    for (i = 0; i < 4; i++)
        put(0);
    if (cause)
        copy_bytes(block_place - sizeof list_failure, (volatile __xdata u8 *)&list_failure,
                   sizeof list_failure);
    result_end();
    rest = 0;
    bulk_continue_out();
}

static void refuse(u8 cause)
{
    u8 i;

    HOLD;
    for (i = 0; i < sizeof list_failure; i++)
        ((volatile __xdata u8 *)&list_failure)[i] = 0;
    list_failure.cause = cause;
    RELEASE;
    answer(cause, expected, 0);
}

static u8 is_a_list(void)
{
    u16 size = load16(BULK_OUT_BUFFER + LIST_HEADER_LENGTH_OFFSET);

    return load16(BULK_OUT_BUFFER) == LIST_HEADER_MAGIC_FIXED && !(LOW(size) & 7) &&
           size >= LIST_HEADER_SIZE + LIST_TRAILER_SIZE && size <= LIST_BYTES;
}

static u8 is_expected(void)
{
    return load16(BULK_OUT_BUFFER + LIST_HEADER_SEQUENCE_OFFSET) == expected;
}

static void run(void)
{
    u16 sequence = load16(LIST + LIST_HEADER_SEQUENCE_OFFSET);
    u8 cause;

    if (block_first | block_second) {
        refuse(RESULT_TRAILER_CAUSE_BAD_CHECKSUM);
        return;
    }
    if (sequence != expected) {
        refuse(RESULT_TRAILER_CAUSE_BAD_SEQUENCE);
        return;
    }
    HOLD;
    list_sequence = expected++;
    RELEASE;
    block_operation = LIST + LIST_HEADER_SIZE;
    cause = execute(LIST + load16(LIST + LIST_HEADER_LENGTH_OFFSET) - LIST_TRAILER_SIZE);
    if (!GIVEN_UP)
        answer(cause, list_sequence, execute_index);
}

/* Receive a packet of a list: its first one, if no list is being received. */
static void receive(void)
{
    u16 part = bulk_received();

    if (!rest) {
        if (!is_a_list()) {
            refuse(RESULT_TRAILER_CAUSE_BAD_HEADER);
            return;
        }
        rest = load16(BULK_OUT_BUFFER + LIST_HEADER_LENGTH_OFFSET);
        page = HIGH((u16)LIST);
        block_first = block_second = 0;
    }
    if (part >= rest) {
        part = rest;
    } else if (LOW(part)) { /* not a full one, or one that block_copy cannot put behind another */
        refuse(RESULT_TRAILER_CAUSE_BAD_HEADER);
        return;
    }
    block_copy(HIGH((u16)BULK_OUT_BUFFER), page, LOW(part >> 2));
    page += HIGH(part);
    rest -= part;
    if (rest)
        bulk_continue_out();
    else
        run();
}

/* Not if this has been given up: a LIST that came since would count as begun, and the endpoint stay unarmed. */
static void begin(void)
{
    HOLD;
    if (!GIVEN_UP) {
        begun = generation;
        expected = first_sequence;
    }
    RELEASE;
    rest = 0;
    dropping = 0;
    result_start();
    bulk_continue_out();
}

/* Between lists a packet waits until the last result has been sent, unless it is to be dropped. An empty one
 * only ends a transfer of full packets: it is ignored. */
void list_run(void)
{
    if (!is_open || GIVEN_UP)
        return;
    if (begun != generation)
        begin();
    result_poll();
    if (!arrived)
        return;
    if (!bulk_received() || dropping && !rest && !(is_a_list() && is_expected())) {
        if (take())
            bulk_continue_out();
    } else if (rest || result_is_gone()) {
        if (take())
            receive();
    }
}
