/* For the tests in C: a check that says where it failed. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lacuna.h>
#include <sdr.h>
#include <sdr_mr.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,  \
                    lacuna_last_error());                                                    \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* A failure with a text that says something. */
#define CHECK_ERROR(call, text)                                                              \
    do {                                                                                     \
        CHECK((call) == SDR_ERROR);                                                          \
        CHECK(strstr(lacuna_last_error(), text));                                            \
    } while (0)

/* What several threads store and use, in a way that the thread sanitizer knows. */
#define PUT(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define GET(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)

#endif
