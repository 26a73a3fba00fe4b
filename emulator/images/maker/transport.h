/* Bulk-Only Transport 1.0: a command's wrapper, its data, its status. Main's. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

/* Wait for a command, and carry it out. */
void transport_run(void);

#endif
