#include "transport.h"

#include "chip.h"
#include "engine.h"
#include "scsi.h"

/* Of a command block wrapper. */
enum { TAG = 4, LENGTH = 8, FLAGS = 12, LUN = 13, CDB_LENGTH = 14, CDB = 15 };
enum { TO_HOST = 0x80, MOST_CDB = 16 };
/* Of a command status wrapper. */
enum { STATUS_TAG = 4, RESIDUE = 8, STATUS = 12 };

static __xdata u32 residue; /* bytes that the host expects, less those that went */
static __xdata u32 left;    /* bytes that are still to go */
static __xdata u32 unsent;  /* of them, what the host has not sent yet */
static __xdata u8 result;

static u8 is_wrapper(u8 arrived)
{
    return arrived == 1 && wrapper[0] == 'U' && wrapper[1] == 'S' && wrapper[2] == 'B' && wrapper[3] == 'C' &&
           wrapper[LUN] == 0 && wrapper[CDB_LENGTH] >= 1 && wrapper[CDB_LENGTH] <= MOST_CDB;
}

/* Each of these returns 0 if the command has been aborted. */

/* IN. If there is less than the host expects, and no short packet says so, a STALL does. */
static u8 send_data(void)
{
    u16 size = engine_packet_size();
    u16 part = 0;

    if (left > residue) {
        left = residue; /* case 7 of BOT 6.7 */
        result = PHASE_ERROR;
    }
    while (left) {
        part = left < size ? (u16)left : size;
        scsi_fill(part);
        if (!engine_send(part))
            return 0;
        left -= part;
        residue -= part;
    }
    if (residue && (part == 0 || part == size))
        return engine_stall_in(); /* cases 4, 5, 8 */
    return 1;
}

/* OUT. What the host sends beyond the command's data, it need not send: a STALL says so. */
static u8 receive_data(void)
{
    u16 size = engine_packet_size();
    u16 came, part;

    unsent = residue;
    if (left > residue) {
        left = 0; /* case 13 */
        result = PHASE_ERROR;
    }
    while (left) {
        if (!engine_receive())
            return 0;
        came = engine_received();
        part = left < came ? (u16)left : came;
        if (result == PASSED && !scsi_drain(part))
            result = FAILED;
        left -= part;
        residue -= part;
        unsent = came < unsent ? unsent - came : 0;
        if (came < size)
            break; /* the host has ended the stage */
    }
    if (left && result == PASSED)
        result = FAILED;
    if (unsent && left == 0)
        engine_stall_out(); /* cases 9 to 11 */
    return 1;
}

static void put(u8 at, u32 value)
{
    STATUS_BUFFER[at] = (u8)value;
    STATUS_BUFFER[at + 1] = (u8)(value >> 8);
    STATUS_BUFFER[at + 2] = (u8)(value >> 16);
    STATUS_BUFFER[at + 3] = (u8)(value >> 24);
}

static u8 conclude(void)
{
    u8 i;

    STATUS_BUFFER[0] = 'U';
    STATUS_BUFFER[1] = 'S';
    STATUS_BUFFER[2] = 'B';
    STATUS_BUFFER[3] = 'S';
    for (i = 0; i < 4; i++)
        STATUS_BUFFER[STATUS_TAG + i] = wrapper[TAG + i];
    put(RESIDUE, residue);
    STATUS_BUFFER[STATUS] = result;
    return engine_send_status();
}

static u8 carry_out(void)
{
    u8 direction;

    residue = *(__xdata u32 *)(wrapper + LENGTH);
    result = PASSED;
    if (!scsi_begin(wrapper + CDB, wrapper[CDB_LENGTH]))
        result = FAILED;
    left = scsi_amount;
    direction = left == 0 ? NO_DATA : scsi_direction;
    if (residue == 0) {
        if (direction != NO_DATA)
            result = PHASE_ERROR; /* cases 2, 3 */
    } else if (wrapper[FLAGS] & TO_HOST) {
        if (direction == FROM_HOST) {
            result = PHASE_ERROR; /* case 8 */
            left = 0;
        }
        if (!send_data())
            return 0;
    } else {
        if (direction == FOR_HOST) {
            result = PHASE_ERROR; /* case 10 */
            left = 0;
        }
        if (!receive_data())
            return 0;
    }
    return conclude();
}

void transport_run(void)
{
    u8 arrived = engine_wait();

    if (!arrived)
        return;
    if (!is_wrapper(arrived))
        engine_demand_reset(); /* BOT 6.6.1 */
    else if (carry_out())
        scsi_afterwards();
}
