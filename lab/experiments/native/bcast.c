/* bcast SOURCE TARGET: rank 0 broadcasts the file SOURCE by one MPI_Bcast; every other rank receives it into the file
   TARGET, in which %s stands for its host's name. The files are mapped and their pages are there beforehand, so that
   nothing but the broadcast is timed. Prints "go" and then "done SECONDS" of the slowest rank. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *mapped(const char *path, long *size, int make) {
    int file = open(path, make ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0644);
    struct stat about;
    if (file < 0 || (make && ftruncate(file, *size)) || fstat(file, &about)) { perror(path); return NULL; }
    *size = about.st_size;
    /* some algorithms write into the root's buffer what is there already: so that is a copy */
    void *at = mmap(NULL, *size, PROT_READ | PROT_WRITE, (make ? MAP_SHARED : MAP_PRIVATE) | MAP_POPULATE, file, 0);
    close(file);
    if (at == MAP_FAILED) { perror("mmap"); return NULL; }
    return at;
}

int main(int count, char **words) {
    int rank;
    long size = 0;
    void *data = NULL;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0 && !(data = mapped(words[1], &size, 0))) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Bcast(&size, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        char host[256], path[4096];
        gethostname(host, sizeof host);
        snprintf(path, sizeof path, words[2], host);
        if (!(data = mapped(path, &size, 1))) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (size > INT_MAX) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) { puts("go"); fflush(stdout); }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime(), slowest;
    MPI_Bcast(data, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) { printf("done %.4f\n", slowest); fflush(stdout); }
    MPI_Finalize();
    return 0;
}
