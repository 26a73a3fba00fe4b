#include "supply.h"

#include "bytes.h"
#include "control.h"
#include "timer.h"

/* A transaction that has not ended after one to two ticks of the uptime, 10 to 20 ms, never will. */
enum { PATIENCE_MS = 20 };
enum { IDLE, POINT_SHUNT, READ_SHUNT, POINT_BUS, READ_BUS, STEPS };
/* The odd steps. */
#define POINTS 1
enum { POINTED = I2C_CSR_DONE | I2C_CSR_OUTCOME_POINTED, READ = I2C_CSR_DONE | I2C_CSR_OUTCOME_READ };
/* The sensor's address as the first byte on the bus. */
#define SENSOR ((u8)(SENSOR_ADDRESS * 2))

volatile __bit supply_wanted;
volatile __bit supply_busy;

static __xdata u8 step, began;
static __xdata u8 status[SUPPLY_STATUS_SIZE];

#define NOW (((__idata u8 *)&uptime)[0])

void supply_request(void)
{
    supply_wanted = 1;
    supply_busy = 1;
}

static void start(void)
{
    if (step & POINTS) {
        I2C_TARGET = SENSOR;
        I2C_DATA = step == POINT_BUS ? SENSOR_BUS : SENSOR_SHUNT;
    } else {
        I2C_TARGET = SENSOR | I2C_TARGET_READ;
        I2C_DATA = 0;
        FLASH_BUFFER |= FLASH_BUFFER_I2C_RECEIVE;
    }
    I2C_LENGTH = 2;
    I2C_CSR = 0xFF;
    I2C_CSR = I2C_CSR_START;
    began = NOW;
}

static void begin(void)
{
    PIN_SCL = PIN_SCL_FUNCTION_I2C;
    PIN_SDA = PIN_SDA_FUNCTION_I2C;
    I2C_MODE = 0xC4;
    I2C_CLOCK_LOW = 0x18;
    I2C_CLOCK_HIGH = 0x4A;
    I2C_WRITES = 0;
    step = POINT_SHUNT;
    start();
}

/* Of a voltage that is not negative: 2500 / 2197 times as many, rounded down. That is the voltage itself, and
 * 303 / 2197 of it more: a division bit by bit, whose quotient comes into the bits that have left. */
#define MORE (SENSOR_SHUNT_NANOVOLTS - SENSOR_SHUNT_MICROOHMS)
static u16 milliamperes(u16 voltage) __naked
{
    (void)voltage;
    __asm
        mov     r4,dpl
        mov     r5,dph
        clr     a
        mov     r6,a                    ; the rest
        mov     r7,a
        mov     r1,#16
00001$:
        mov     a,r6
        add     a,r6
        mov     r6,a
        mov     a,r7
        rlc     a
        mov     r7,a
        mov     a,r4
        add     a,r4
        mov     r4,a
        mov     a,r5
        rlc     a
        mov     r5,a
        jnc     00002$
        mov     a,r6
        add     a,#<(MORE)
        mov     r6,a
        mov     a,r7
        addc    a,#>(MORE)
        mov     r7,a
00002$:
        mov     a,r6
        clr     c
        subb    a,#<(SENSOR_SHUNT_MICROOHMS)
        mov     r0,a
        mov     a,r7
        subb    a,#>(SENSOR_SHUNT_MICROOHMS)
        jc      00003$
        mov     r7,a
        mov     a,r0
        mov     r6,a
        inc     r4
        cjne    r4,#0,00002$
        inc     r5
        sjmp    00002$
00003$:
        djnz    r1,00001$
        mov     a,dpl
        add     a,r4
        mov     dpl,a
        mov     a,dph
        addc    a,r5
        mov     dph,a
        ret
    __endasm;
}

static void keep_voltage(u16 word)
{
    status[SUPPLY_STATUS_MILLIVOLTS_OFFSET] = LOW(word);
    status[SUPPLY_STATUS_MILLIVOLTS_OFFSET + 1] = HIGH(word);
}

static void keep_current(u16 word)
{
    status[SUPPLY_STATUS_MILLIAMPERES_OFFSET] = LOW(word);
    status[SUPPLY_STATUS_MILLIAMPERES_OFFSET + 1] = HIGH(word);
}

/* Keep what has been read. A bit of the bus voltage is 1.25 mV. */
static void take(void)
{
    u16 word = load16_reversed(XRAM_E800);

    if (step == READ_BUS)
        keep_voltage(word + (word >> 2));
    else
        keep_current(HIGH(word) & 0x80 ? -milliamperes(-word) : milliamperes(word));
}

static void answer(u8 fault)
{
    if (fault) {
        keep_voltage(0);
        keep_current(0);
    }
    if (!(PIN_LEVELS & PIN_LEVELS_SUPPLY_GOOD))
        fault |= SUPPLY_STATUS_FAULT_SUPPLY;
    status[SUPPLY_STATUS_FAULT_OFFSET] = fault;
    step = IDLE;
    HOLD;
    supply_busy = 0;
    if (supply_wanted) {
        supply_wanted = 0;
        copy_bytes(EP0_BUFFER, status, SUPPLY_STATUS_SIZE);
        control_send(SUPPLY_STATUS_SIZE);
    }
    RELEASE;
}

/* The transaction is over, or too late: go on with the next. */
static void proceed(u8 outcome)
{
    I2C_CSR = I2C_CSR_DONE;
    FLASH_BUFFER &= ~FLASH_BUFFER_I2C_RECEIVE;
    if (outcome != (step & POINTS ? POINTED : READ)) {
        answer(SUPPLY_STATUS_FAULT_SENSOR);
        return;
    }
    if (!(step & POINTS))
        take();
    if (step == READ_BUS) {
        answer(0);
        return;
    }
    step++;
    start();
}

void supply_poll(void)
{
    u8 outcome;

    if (!step) {
        begin();
        return;
    }
    outcome = I2C_CSR;
    if (outcome & I2C_CSR_DONE || (u8)(NOW - began) >= PATIENCE_MS)
        proceed(outcome);
}
