/* fd.h - what the files of the backend fd share: a problem, and the two ways to apply it. */
#ifndef FD_H
#define FD_H

#include "backend.h"

typedef struct fd_problem {
    int64_t n, d, half; /* half: M */
    int     causal;
    const char *isa; /* rac's name of the instructions to use, or "auto" */
} fd_problem;

/* One way; as in backend.h. */
typedef struct fd_way {
    tl_status (*plan)(const tl_host *h, const fd_problem *p, void **out_plan);
    tl_status (*forward)(void *plan, const tl_tno_args *a);
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    tl_status (*dense)(void *plan, const tl_tno_args *a);
    void      (*release)(void *plan);
    int64_t   (*kept)(void *plan); /* NULL: nothing */
} fd_way;

/* Channels in vector lanes (lanes.c). out_plan NULL after TL_OK: not for this M. */
extern const fd_way fd_lanes;
/* Channel by channel, for any M, by the host's transforms (lines.c). */
extern const fd_way fd_lines;

/* Whether the processor has these instructions. */
int fd_has(const char *isa);

#endif
