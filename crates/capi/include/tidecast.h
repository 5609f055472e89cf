/* Tidecast: the same bytes into a buffer of every process of a group.
 *
 *   tidecast_group *group;
 *   if (tidecast_open("node01:7000", rank, size, secret, 60.0, 0, &group)) fail(tidecast_last_error());
 *   if (tidecast_bcast(group, buffer, length, 0, 60.0, NULL)) fail(tidecast_last_error());
 *   tidecast_close(group);
 *
 * Within an MPI program rank 0 opens ":0", and broadcasts tidecast_address() and a secret with MPI_Bcast.
 *
 * Units: lengths are bytes, times are seconds. Text is UTF-8 that ends with a zero byte.
 * Ownership: arguments stay the caller's and are not kept after the call returns.
 * Threads: a group may be used by any thread, one call at a time (others wait their turn). It has threads of its own;
 * a process that forks keeps its groups, its child has none. Signals are left as they are; none is raised here.
 * Errors: 0 is success; what is wrong in words is tidecast_last_error(), for each thread its own.
 * Link with -ltidecast; the library's SONAME is libtidecast.so.
 */
#ifndef TIDECAST_H
#define TIDECAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call answers. */
enum {
    TIDECAST_OK = 0,
    TIDECAST_USAGE = 1,    /* the arguments make no sense; the others have not heard of the call */
    TIDECAST_JOIN = 2,     /* rank 0 was not reached, or does not take this member */
    TIDECAST_LOST = 3,     /* this rank is no longer of the group: every further call fails too */
    TIDECAST_FAILED = 4,   /* this call failed for this rank; the next may not */
    TIDECAST_MEMORY = 5,   /* shared memory (/dev/shm, or TIDECAST_SHM_DIR) is too small */
    TIDECAST_SYSTEM = 6,   /* the operating system refused something */
    TIDECAST_INTERNAL = 7  /* a fault of Tidecast's; close the group */
};

/* Flags of tidecast_open. */
enum {
    TIDECAST_PLAIN = 1     /* data between hosts need not be encrypted: faster on fast networks */
};

/* A member of a group of processes. */
typedef struct tidecast_group tidecast_group;

/* Makes this process number `rank` of `size`. Rank 0 listens at `address` ("host:port", on all of its addresses; ":0":
 * any port) and does not wait for the others; the others find it there, trying for `timeout` seconds (several
 * addresses: commas between). `secret` is the same for all and known to nobody else; make it long and random, since
 * whoever guesses it can join; "" is a group that is open to all who reach the address.
 * The group is yours: give it to tidecast_close. After an error `*group` is NULL.
 * Several ranks may be threads of one process: each opens its own group, and the calls of one need not wait for another's. */
int tidecast_open(const char *address, uint32_t rank, uint32_t size, const char *secret, double timeout,
                  uint32_t flags, tidecast_group **group);

/* Where the others find rank 0, for their tidecast_open; good until the group is closed. NULL: no group. */
const char *tidecast_address(const tidecast_group *group);

/* Brings the `length` bytes at `buffer` of rank `root` into `buffer` of every rank. All ranks make the same calls in
 * the same order; a rank whose length differs fails, the others do not. The root only reads its buffer. `buffer` may
 * be NULL if `length` is 0.
 *
 * `timeout`: ranks wait so long for each other to call; who has not called by then is given up (TIDECAST_LOST there),
 * and the others go on. Then the transfer takes as long as it takes, but fails when nothing moves for a minute.
 *
 * `missed`, if not NULL: at the root, how many ranks do not have it (tidecast_missed says which); 0 elsewhere. A small
 * buffer (all copies together at most 4 MiB) has been sent when the root returns, not received, as with MPI_Bcast.
 *
 * After an error what is in a receiver's buffer is undefined. */
int tidecast_bcast(tidecast_group *group, void *buffer, size_t length, uint32_t root, double timeout, size_t *missed);

/* The ranks that the last tidecast_bcast of this thread counted in `missed`: puts at most `room` of them into `ranks`,
 * answers how many there are. */
size_t tidecast_missed(uint32_t *ranks, size_t room);

/* Instead of tidecast_bcast, when this rank finds that it cannot take part: the others are told `why` and need not wait
 * for it. */
int tidecast_abstain(tidecast_group *group, uint32_t root, const char *why, double timeout);

/* Leaves the group. Rank 0 first waits for calls of others to end, at most two minutes; call it before the process
 * ends, or others may lose what this one still passes on. NULL is ignored. */
void tidecast_close(tidecast_group *group);

/* The kind of an error in a few words; good for ever. */
const char *tidecast_strerror(int error);

/* What was wrong with the last call of this thread that failed, in words; good until its next call. */
const char *tidecast_last_error(void);

/* The version, "1.2.3"; good for ever. */
const char *tidecast_version(void);

#ifdef __cplusplus
}
#endif

#endif
