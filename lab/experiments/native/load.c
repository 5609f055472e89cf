/* load DIRECTORY COUNT: loads lib0.so to lib(COUNT-1).so of the directory, all symbols at once as MPI programs ask for,
   and calls a function of each. Prints what came of it, the same wherever the libraries are. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    char name[4096];
    long x = 1;
    if (count != 3) return 2;
    for (int i = 0; i < atoi(words[2]); i++) {
        snprintf(name, sizeof name, "%s/lib%d.so", words[1], i);
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
        snprintf(name, sizeof name, "l%d_0", i);
        long (*function)(long) = (long (*)(long))dlsym(library, name);
        if (!function) { fprintf(stderr, "%s\n", dlerror()); return 1; }
        x = function(x);
    }
    printf("%ld\n", x);
    return 0;
}
