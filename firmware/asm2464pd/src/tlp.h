/* The PCIe TLP engine: one request of one dword at a time. Main's, all of it.
 *
 * A posted request is launched and has no answer. Any other ends with a completion, with the hardware's
 * time-out, or (on a dead link, or at addresses that never answer) not at all, so waits have a bound.
 *
 * A request that is given up may be completed later, while the next one waits. So the next one gets another
 * tag, and from then on, until the link goes down, tlp_guarded is set: a completion is genuine only if it
 * carries the tag of the request, and blocks are read at half the speed. Whether the tag of completions can be
 * trusted is itself checked, on the last one that came in time. A late completion that arrives in the few
 * clocks between the right one and our reading of it replaces it: that read ends as not completed, never with
 * the wrong data.
 *
 * Loops that launch by themselves do it like tlp_launch: TLP_CLEAR, then TLP_SEND. The data has arrived when
 * TLP_STATUS shows TLP_STATUS_COMPLETE, tlp_guarded is 0 and TLP_IS_GOOD. In every other case they call
 * tlp_wait, which may be called at any time after the launch, and which does the rest.
 */
#ifndef TLP_H
#define TLP_H

#include "chip.h"

#define TLP_CLEAR (TLP_STATUS = TLP_STATUS_ERROR | TLP_STATUS_COMPLETE | TLP_STATUS_SENT)
#define TLP_SEND (TLP_LAUNCH = TLP_LAUNCH_CODE_REQUEST)
/* The completion's status is 0: successful. */
#define TLP_IS_GOOD ((TLP_COMPLETION_STATUS_HIGH & HIGH(TLP_COMPLETION_STATUS_STATUS)) == 0)
/* Of TLP_FMT_TYPE: a memory write, or a message. */
#define TLP_IS_POSTED(format) (((format) & 0xDF) == 0x40 || ((format) & 0x38) == 0x30)

/* A request has been given up since tlp_start. */
extern __bit tlp_guarded;

/* Called at start, and when the link has been down: completions of older requests cannot come any more. */
void tlp_start(void);
/* Launch the request in the registers; one that is still outstanding is given up. */
void tlp_launch(void);
/* Wait for the completion of the last request. Returns one of RESULT_TRAILER_CAUSE_DONE,
 * _UNSUPPORTED_REQUEST, _COMPLETER_ABORT, _CONFIGURATION_RETRY (completed, with data or without),
 * _COMPLETION_TIMEOUT, _LINK_DOWN and _NO_COMPLETION (not completed: too late, or GIVEN_UP). */
u8 tlp_wait(void);
/* Address registers += 4; the engine does not do it. */
void tlp_next_dword(void);

#endif
