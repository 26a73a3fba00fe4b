// How elements that belong together lie.
#pragma once

#define ALONG 0   // in a row
#define ACROSS 1  // those beside them do
#define STRIDED 2 // neither
#define SAME 3    // all are one
