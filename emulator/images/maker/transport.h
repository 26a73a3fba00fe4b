/* Bulk-Only Transport 1.0: a command's wrapper, its data, its status. Main's. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

/* Carry a command out, if one has come. */
void transport_run(void);

#endif
