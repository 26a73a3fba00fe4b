#include "result.h"

#include "block.h"
#include "bulk.h"
#include "job.h"
#include "timer.h"

/* Dwords that are read at a time, except the first, while a packet waits: by then the host has mostly read it. */
enum { FEW = 3 };
enum { LIMIT = RESULT_BYTES - RESULT_TRAILER_SIZE - 4 * FEW, COPY = 1024 };

volatile __bit result_taken;

static __bit sending, ended;
static u16 sent;

#define FILLED ((u16)block_place - (u16)BULK_IN_BUFFER)

void result_start(void)
{
    block_place = BULK_IN_BUFFER;
    sending = ended = 0;
}

static void send(u16 length)
{
    sent = length;
    sending = 1;
    result_taken = 0;
    bulk_continue_in(length);
}

/* The data behind the packet that the host has read moves to the buffer's start. */
static void move_down(void)
{
    u8 to = HIGH((u16)BULK_IN_BUFFER);
    u16 left, length;

    block_place -= sent;
    for (left = FILLED; left; left -= length) {
        length = left < COPY ? left : COPY;
        block_copy(to + HIGH(sent), to, LOW(length >> 2));
        to += HIGH(COPY);
    }
}

void result_poll(void)
{
    u16 packet = bulk_packet_size();

    if (sending) {
        if (!result_taken)
            return;
        sending = 0;
        if (sent < packet)
            ended = 0;
        move_down();
    }
    if (FILLED >= packet)
        send(packet);
    else if (ended)
        send(FILLED);
}

u8 result_room(void)
{
    for (;;) {
        result_poll();
        if (!sending)
            return (u8)((bulk_packet_size() - FILLED) >> 2) - 1;
        if (FILLED < LIMIT)
            return FEW;
        if (GIVEN_UP)
            return 0;
        timer_poll();
    }
}

void result_end(void)
{
    ended = 1;
    result_poll();
}

u8 result_is_gone(void)
{
    return !sending && !ended;
}
