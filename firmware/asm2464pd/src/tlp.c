#include "tlp.h"

#include "job.h"
#include "timer.h"

enum { FIRST_TAG = 0x20, TAGS = 0x1F };
/* 500 thousand polls of 30 clocks or more each: longer than the assumed time-out of the hardware, 50 ms. */
enum { ROUNDS = 1954 };

__bit tlp_guarded;

static __bit outstanding;

#define TAG_MATCHES (TLP_COMPLETION_TAIL_1 == TLP_TAG)

void tlp_start(void)
{
    TLP_LENGTH = 1;
    TLP_TAG = FIRST_TAG;
    tlp_guarded = outstanding = 0;
}

/* Its completion may still come. If the last one that came carried the tag of its request, a new tag will
 * distinguish the next one from it. */
static void give_up(void)
{
    outstanding = 0;
    if (!tlp_guarded && !TAG_MATCHES)
        return;
    tlp_guarded = 1;
    TLP_TAG = FIRST_TAG | (TLP_TAG + 1 & TAGS);
}

void tlp_launch(void)
{
    if (outstanding && !(TLP_STATUS & (TLP_STATUS_COMPLETE | TLP_STATUS_ERROR)))
        give_up();
    outstanding = !TLP_IS_POSTED(TLP_FMT_TYPE);
    TLP_CLEAR;
    TLP_SEND;
}

/* Evaluate COMPLETE; a completion of an older request is discarded. Checked twice, as the right one may come
 * in between. */
static u8 is_genuine(void)
{
    if (!tlp_guarded || TAG_MATCHES)
        return 1;
    TLP_STATUS = TLP_STATUS_COMPLETE;
    return TAG_MATCHES;
}

static u8 completion_cause(void)
{
    switch (TLP_COMPLETION_STATUS_HIGH & HIGH(TLP_COMPLETION_STATUS_STATUS)) {
    case 0:
        return RESULT_TRAILER_CAUSE_DONE;
    case HIGH(TLP_COMPLETION_STATUS_STATUS_UR):
        return RESULT_TRAILER_CAUSE_UNSUPPORTED_REQUEST;
    case HIGH(TLP_COMPLETION_STATUS_STATUS_CRS):
        return RESULT_TRAILER_CAUSE_CONFIGURATION_RETRY;
    default:
        return RESULT_TRAILER_CAUSE_COMPLETER_ABORT;
    }
}

u8 tlp_wait(void)
{
    u16 rounds;
    u8 polls, status;

    if (TLP_IS_POSTED(TLP_FMT_TYPE))
        return RESULT_TRAILER_CAUSE_DONE;
    for (rounds = ROUNDS; rounds && !GIVEN_UP; rounds--) {
        polls = 0;
        do {
            status = TLP_STATUS;
            if (status & TLP_STATUS_COMPLETE && is_genuine()) {
                outstanding = 0;
                return completion_cause();
            }
            if (status & TLP_STATUS_ERROR) {
                give_up();
                return PCIE_LINK_STATUS & PCIE_LINK_STATUS_UP ? RESULT_TRAILER_CAUSE_COMPLETION_TIMEOUT
                                                              : RESULT_TRAILER_CAUSE_LINK_DOWN;
            }
        } while (--polls);
        timer_poll();
    }
    give_up();
    return RESULT_TRAILER_CAUSE_NO_COMPLETION;
}

/* The bytes of a dword of the address are most significant first. */
void tlp_next_dword(void)
{
    volatile __xdata u8 *address = &TLP_ADDRESS_3;
    u8 i;

    if (TLP_ADDRESS_0 += 4)
        return;
    for (i = 1; i < 8; i++)
        if (++address[i ^ 3])
            return;
}
