/* The NVMe queues' memory. Before interrupts are enabled, then the handler's. */
#ifndef QUEUES_H
#define QUEUES_H

/* Fill the queues with 0. */
void queues_clear(void);

#endif
