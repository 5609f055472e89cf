/* Tidecast: broadcast a buffer of one process to all processes of a group.
 *
 *   tidecast_group *group;
 *   if (tidecast_open("node01:7000", rank, size, secret, 60.0, 0, &group)) fail(tidecast_last_error());
 *   if (tidecast_bcast(group, buffer, length, 0, 60.0, NULL)) fail(tidecast_last_error());
 *   tidecast_close(group);
 *
 * In an MPI program rank 0 opens ":0", and broadcasts tidecast_address() and a secret with MPI_Bcast.
 *
 * Units: lengths are bytes, times are seconds. Text is UTF-8 that ends with a zero byte.
 * Ownership: the caller owns all arguments; the library does not keep them after the call returns.
 * Threads: any thread may use a group; concurrent calls run one after the other. A group starts its own threads; after a
 * fork only the parent may use it. The library changes no signal handlers and raises no signals.
 * Errors: 0 is success; tidecast_last_error() has the message, separately for each thread.
 * Link with -ltidecast; the library's SONAME is libtidecast.so.
 */
#ifndef TIDECAST_H
#define TIDECAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return values. */
enum {
    TIDECAST_OK = 0,
    TIDECAST_USAGE = 1,    /* invalid arguments; other ranks are not affected */
    TIDECAST_JOIN = 2,     /* cannot connect to rank 0, or rank 0 rejected this member */
    TIDECAST_LOST = 3,     /* this rank was removed from the group: all further calls fail too */
    TIDECAST_FAILED = 4,   /* this call failed for this rank; the next call may succeed */
    TIDECAST_MEMORY = 5,   /* shared memory (/dev/shm, or TIDECAST_SHM_DIR) is too small */
    TIDECAST_SYSTEM = 6,   /* a system call failed */
    TIDECAST_INTERNAL = 7  /* internal error of Tidecast; close the group */
};

/* Flags of tidecast_open. */
enum {
    TIDECAST_PLAIN = 1     /* send data between hosts unencrypted: faster on fast networks */
};

/* A member of a group of processes. */
typedef struct tidecast_group tidecast_group;

/* Opens a group of `size` ranks, in which this process is number `rank`. Rank 0 listens on the port of `address`
 * ("host:port", on all of the host's addresses; ":0": any port) and does not wait for the other ranks; these connect to
 * `address` (several: separated by commas), trying for `timeout` seconds. `secret` is the same for all ranks; make it long
 * and random, because any process that knows it can join; with "" any process that reaches the address can join.
 * The caller owns the group: close it with tidecast_close. After an error `*group` is NULL.
 * Several ranks may be threads of one process: each opens its own group, and their calls run independently. */
int tidecast_open(const char *address, uint32_t rank, uint32_t size, const char *secret, double timeout,
                  uint32_t flags, tidecast_group **group);

/* The address of rank 0, for tidecast_open of the other ranks; valid until the group is closed. NULL if `group` is NULL. */
const char *tidecast_address(const tidecast_group *group);

/* Copies the `length` bytes at `buffer` of rank `root` to `buffer` of every rank. All ranks make the same calls in
 * the same order; a rank whose length differs fails, the others do not. The root only reads its buffer. `buffer` may
 * be NULL if `length` is 0.
 *
 * `timeout`: the time that ranks wait for each other to call; a rank that has not called by then is removed
 * (TIDECAST_LOST there), and the others continue. The transfer itself has no time limit, but fails if no data moves for
 * a minute.
 *
 * `missed`, if not NULL: at the root, the number of ranks without the data (listed by tidecast_missed); 0 elsewhere. A
 * small buffer (all copies together at most 4 MiB) has been sent, but not received, when the root returns, as with
 * MPI_Bcast.
 *
 * After an error the contents of a receiver's buffer are undefined. */
int tidecast_bcast(tidecast_group *group, void *buffer, size_t length, uint32_t root, double timeout, size_t *missed);

/* The ranks that the last tidecast_bcast of this thread counted in `missed`: writes at most `room` of them to `ranks`, and
 * returns their number. */
size_t tidecast_missed(uint32_t *ranks, size_t room);

/* Called instead of tidecast_bcast if this rank cannot join the call: the other ranks receive `why` and do not wait for
 * this rank. */
int tidecast_abstain(tidecast_group *group, uint32_t root, const char *why, double timeout);

/* Leaves and frees the group. Rank 0 first waits for calls of other ranks to end, at most two minutes. Call it before the
 * process ends, or other hosts may lose data that this rank still sends them. NULL is ignored. */
void tidecast_close(tidecast_group *group);

/* A short description of an error code; always valid. */
const char *tidecast_strerror(int error);

/* The message of the last failed call of this thread; valid until its next call. */
const char *tidecast_last_error(void);

/* The version, "1.2.3"; always valid. */
const char *tidecast_version(void);

#ifdef __cplusplus
}
#endif

#endif
