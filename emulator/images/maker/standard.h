/* The requests on EP0: standard, and the two of the mass-storage class. The handler's. */
#ifndef STANDARD_H
#define STANDARD_H

void standard_reset(void);
void standard_request(void);

#endif
