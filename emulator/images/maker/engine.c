#include "engine.h"

enum { IN = 0x81 };

/* Written by the handler, read by main. */
static volatile __xdata u8 arrived;   /* a wrapper: 1, or 2 if its size is wrong */
static volatile __xdata u8 aborted;   /* main's command */
static volatile __xdata u8 sending;   /* an IN packet is armed */
static volatile __xdata u8 sent;      /* it has gone */
static volatile __xdata u8 receiving; /* EP 0x02 is armed */
static volatile __xdata u8 received;  /* the packet has come */
static volatile __xdata u8 cleared;   /* the halt of EP 0x81 */
static volatile __xdata u8 concluded; /* the host has the status */

/* The handler's. */
static __xdata u8 busy;   /* the engine has passed a command on, and has not got rid of its status yet */
static __xdata u8 locked; /* only a class reset helps */

__xdata u8 wrapper[WRAPPER_SIZE];

/* -- the handler ----------------------------------------------------------------------------------------- */

/* Row 12: the resets one bit at a time, on and off, then the engine is armed with ENGINE_PATHS = 0. */
void engine_start(void)
{
    u8 bit;

    ENGINE_PATHS |= 0x02;
    ENGINE_PATHS |= 0x04;
    ENGINE_PATHS |= 0x01;
    for (bit = 0x01; bit != 0x20; bit <<= 1)
        ENGINE_RESETS |= bit;
    ENGINE_PATHS &= ~0x02;
    ENGINE_PATHS &= ~0x04;
    ENGINE_PATHS &= ~0x01;
    for (bit = 0x01; bit != 0x20; bit <<= 1)
        ENGINE_RESETS &= ~bit;
    STATUS_LENGTH = 13;
    ENGINE_CONTROL = 0x01;
    ENGINE_STATE &= ~0x01;
    busy = 0;
}

/* Rows 13, 14: the engine says when the packet is there, and whether it is a command. */
void engine_command(void)
{
    STREAM = 0;
    while (!(STREAM_STATE & 0x01))
        ;
    if (STREAM_STATE & 0x02) {
        arrived = 1;
        if (WRAPPER_COUNT_HIGH != 0 || WRAPPER_COUNT_LOW != WRAPPER_SIZE || (STREAM_ERROR & 0x10))
            arrived = 2;
        busy = 1;
    }
    WRAPPER_EVENT = 0x01;
}

/* Row 17. */
void engine_bulk_event(void)
{
    if (BULK_EVENTS & OUT_DONE) {
        BULK_EVENTS = OUT_DONE;
        receiving = 0;
        received = 1;
    }
    if (BULK_EVENTS & IN_DONE) {
        BULK_EVENTS = IN_DONE;
        sending = 0;
        sent = 1;
    }
    BULK_EVENTS = (u8)~(OUT_DONE | IN_DONE);
}

/* Row 16: the engine waits for the next command by itself. */
void engine_status_sent(void)
{
    ENDPOINT_STATUS = 0x02;
    STATUS_SENT = 0x01;
    busy = 0;
    concluded = 1;
}

/* A command that is outstanding keeps the engine until a reset; an idle engine stays armed. */
static void stop(void)
{
    aborted = 1;
    arrived = sending = receiving = locked = 0;
    BULK_COMMAND = CLEAR_IN;
    BULK_COMMAND = CLEAR_OUT;
}

void engine_abort(void)
{
    stop();
    HALTS &= ~HALT_IN;
    HALTS &= ~HALT_OUT;
    HALT_905F &= ~0x01;
    HALT_905D &= ~0x01;
    if (busy || (WRAPPER_EVENT & 0x01))
        engine_start();
    WRAPPER_EVENT = 0x01;
}

void engine_class_reset(void)
{
    stop();
    engine_start();
}

u8 engine_halted(u8 endpoint)
{
    return HALTS & (endpoint == IN ? HALT_IN : HALT_OUT) ? 1 : 0;
}

void engine_halt(u8 endpoint)
{
    HALTS |= endpoint == IN ? HALT_IN : HALT_OUT;
}

/* Row 18. A packet that is armed goes after all: the host expects it with a new sequence number. */
void engine_clear_halt(u8 endpoint)
{
    if (locked)
        return;
    if (endpoint == IN) {
        HALTS &= ~HALT_IN;
        BULK_COMMAND = CLEAR_IN;
        if (sending)
            BULK_COMMAND = ARM_IN;
        cleared = 1;
    } else {
        HALTS &= ~HALT_OUT;
        BULK_COMMAND = CLEAR_OUT;
        if (receiving)
            BULK_COMMAND = ARM_OUT;
    }
}

/* -- main ------------------------------------------------------------------------------------------------ */

u8 engine_wait(void)
{
    u8 i, found;

    while (!arrived)
        ;
    HOLD;
    found = arrived;
    if (found) {
        arrived = aborted = 0;
        for (i = 0; i < WRAPPER_SIZE; i++)
            wrapper[i] = WRAPPER[i];
    }
    RELEASE;
    return found;
}

u8 engine_send(u16 length)
{
    HOLD;
    if (!aborted) {
        sent = 0;
        sending = 1;
        IN_LENGTH_HIGH = HIGH(length);
        IN_LENGTH_LOW = LOW(length);
        BULK_EVENTS = IN_DONE;
        BULK_COMMAND = ARM_IN;
    }
    RELEASE;
    while (!sent && !aborted)
        ;
    return !aborted;
}

u8 engine_receive(void)
{
    HOLD;
    if (!aborted) {
        received = 0;
        receiving = 1;
        BULK_EVENTS = OUT_DONE;
        BULK_COMMAND = ARM_OUT;
    }
    RELEASE;
    while (!received && !aborted)
        ;
    return !aborted;
}

u8 engine_stall_in(void)
{
    HOLD;
    if (!aborted) {
        cleared = 0;
        HALTS |= HALT_IN;
    }
    RELEASE;
    while (!cleared && !aborted)
        ;
    return !aborted;
}

/* Row 15. */
u8 engine_send_status(void)
{
    HOLD;
    if (!aborted) {
        concluded = 0;
        STATUS_SEND = 0x01;
    }
    RELEASE;
    while (!concluded && !aborted)
        ;
    return !aborted;
}

void engine_stall_out(void)
{
    HOLD;
    if (!aborted)
        HALTS |= HALT_OUT;
    RELEASE;
}

void engine_demand_reset(void)
{
    HOLD;
    if (!aborted) {
        locked = 1;
        HALTS |= HALT_IN;
        HALTS |= HALT_OUT;
    }
    RELEASE;
}

u16 engine_received(void)
{
    return (u16)OUT_COUNT_HIGH << 8 | OUT_COUNT_LOW;
}

u16 engine_packet_size(void)
{
    return IS_HIGH_SPEED ? 512 : 1024;
}
