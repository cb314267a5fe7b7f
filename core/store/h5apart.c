/* h5apart.c - reads HDF5 files without our trailer in a child process.
**
** libhdf5 1.10.8 trusts the lengths and addresses in a file: damaged or malicious ones make it
** write outside its memory, or never return. A forked child opens the image and answers one request
** after another with the functions of h5read.c and h5names.c. If the child dies or takes too long,
** the file is reported as damaged and this process is unharmed. To read a file once in a child and
** then here is not enough: some damage spoils memory without killing the child, and of thousands of
** such files one killed this process.
**
** Files with our trailer are parsed in this process. The trailer detects damage, not malice:
** anyone can compute it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/tensor.h"
#include "store/h5.h"

/* For each request the child gets SECONDS of processor time, and one more for each
** BYTES_A_SECOND of the file. By the clock it gets CLOCK_FACTOR times as long, because other
** processes may be using the machine. */
#define SECONDS        3
#define BYTES_A_SECOND 5000000u
#define CLOCK_FACTOR   20
/* The child may allocate BASE_BYTES plus MAX_EXPANSION times the size of the file: deflate
** compresses a chunk up to a thousandfold, and HDF5 copies it. */
#define BASE_BYTES    ((rlim_t)256 << 20)
#define MAX_EXPANSION 6000

enum { OPEN, CHILD, ATTR, READ };

typedef struct request {
    int what;
    int64_t i;
    size_t name; /* bytes that follow: the name */
} request;

typedef struct reply {
    tl_status st;
    char kind;
    int64_t i, dims[TL_MAXDIMS];
    double f;
    int ndim, type;
    size_t name, text; /* bytes that follow: a name, then a text, elements or a message */
} reply;

/* ---- Both ends ------------------------------------------------------------------------------- */

static int send_all(int fd, const void *data, size_t bytes)
{
    for (const char *p = data; bytes;) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        p += n;
        bytes -= (size_t)n;
    }
    return 1;
}

static int receive_all(int fd, void *data, size_t bytes)
{
    for (char *p = data; bytes;) {
        ssize_t n = recv(fd, p, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        p += n;
        bytes -= (size_t)n;
    }
    return 1;
}

static int discard(int fd, size_t bytes)
{
    char some[4096];
    for (size_t n; bytes; bytes -= n) {
        n = bytes < sizeof some ? bytes : sizeof some;
        if (!receive_all(fd, some, n)) return 0;
    }
    return 1;
}

/* ---- The child ------------------------------------------------------------------------------- */

/* Restricts the child: it keeps only the memory of this process and the socket, which becomes
** descriptor 3, and gets limits on memory and time. */
static void restrict_child(int fd, size_t bytes)
{
    sigset_t set;
    struct rlimit none = {0, 0}, space;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lu", &pages) != 1) pages = 0;
    if (f) (void)fclose(f);
    /* The socket moves first. Where standard descriptors were closed its number is below 3, and the
    ** loop would replace it. */
    if (fd != 3) (void)dup2(fd, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) (void)dup2(null, i);
    closefrom(4);
    (void)signal(SIGALRM, SIG_DFL);
    (void)signal(SIGPROF, SIG_DFL);
    (void)sigfillset(&set);
    (void)sigdelset(&set, SIGALRM);
    (void)sigdelset(&set, SIGPROF);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)setrlimit(RLIMIT_CORE, &none);
    space.rlim_cur = space.rlim_max =
        (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + BASE_BYTES + MAX_EXPANSION * (rlim_t)bytes;
    if (pages) (void)setrlimit(RLIMIT_AS, &space);
}

static int send_reply(tl_h5 *f, const request *q, const char *name)
{
    reply a = {0};
    const char *found = NULL, *text = NULL;
    tl_attr attr = {0};
    tl_tensor *t = NULL;
    switch (q->what) {
    case OPEN: a.st = tl_h5_open_image(f); break;
    case CHILD: a.st = tl_h5_here_child(f, name, q->i, &found, &a.kind); break;
    case ATTR: a.st = tl_h5_here_attr(f, name, q->i, &attr); break;
    default: a.st = tl_h5_here_read(f, name, &t);
    }
    if (a.st == TL_OK && q->what == ATTR) {
        found = attr.name;
        text = attr.kind == 's' ? attr.s : NULL;
        a.kind = attr.kind;
        a.i = attr.i;
        a.f = attr.f;
    }
    if (a.st != TL_OK) text = tl_errmsg(f->ctx);
    a.name = found ? strlen(found) : 0;
    a.text = text ? strlen(text) : 0;
    if (t) {
        a.type = t->type;
        a.ndim = t->ndim;
        memcpy(a.dims, t->dims, sizeof a.dims);
        a.text = (size_t)t->len * 4;
        text = DATA(t);
    }
    int sent = send_all(3, &a, sizeof a) && send_all(3, found, a.name) && send_all(3, text, a.text);
    tl_tensor_free(t);
    return sent;
}

static void serve_requests(tl_h5 *f)
{
    request q;
    unsigned seconds = SECONDS + (unsigned)(f->bytes / BYTES_A_SECOND);
    struct itimerval work = {.it_value.tv_sec = (time_t)seconds}, none = {.it_value.tv_sec = 0};
    for (int going = 1; going && receive_all(3, &q, sizeof q);) {
        char *name = malloc(q.name + 1);
        going = name && receive_all(3, name, q.name);
        if (!going) break;
        name[q.name] = '\0';
        (void)alarm(CLOCK_FACTOR * seconds);
        (void)setitimer(ITIMER_PROF, &work, NULL);
        going = send_reply(f, &q, name);
        (void)setitimer(ITIMER_PROF, &none, NULL);
        (void)alarm(0);
        free(name);
    }
    _exit(0);
}

/* ---- This process ---------------------------------------------------------------------------- */

/* Kills the child whatever it is doing, and returns its status as waitpid reports it. */
static int kill_child(tl_h5 *f)
{
    int status = 0;
    if (f->process <= 0) return 0;
    /* harmless if it died already, because it has not been waited for */
    (void)kill(f->process, SIGKILL);
    while (waitpid(f->process, &status, 0) < 0 && errno == EINTR) continue;
    f->process = -1;
    return status;
}

/* Called when the child has died or its reply makes no sense. */
static tl_status child_lost(tl_h5 *f)
{
    int status = kill_child(f);
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *how = number == SIGALRM || number == SIGPROF ? "did not end" : "failed";
    return tl_fail(f->ctx, TL_ECORRUPT, "%s: is damaged: HDF5 %s while reading it", f->path, how);
}

static int receive_text(tl_h5 *f, char **text, size_t bytes)
{
    free(*text);
    *text = bytes <= f->bytes + sizeof f->ctx->message ? malloc(bytes + 1) : NULL;
    if (!*text || !receive_all(f->reader, *text, bytes)) return 0;
    (*text)[bytes] = '\0';
    return 1;
}

/* Sends a request and receives the reply and its texts. The elements of a tensor stay in the
** socket. */
static tl_status ask(tl_h5 *f, int what, const char *name, int64_t i, reply *a)
{
    request q = {what, i, strlen(name)};
    if (f->process < 0 || !send_all(f->reader, &q, sizeof q) ||
        !send_all(f->reader, name, q.name) || !receive_all(f->reader, a, sizeof *a))
        return child_lost(f);
    int elements = what == READ && a->st == TL_OK;
    if (!receive_text(f, &f->name, a->name) || (!elements && !receive_text(f, &f->text, a->text)))
        return child_lost(f);
    return a->st == TL_OK ? TL_OK : tl_fail(f->ctx, a->st, "%s", f->text);
}

tl_status tl_h5_apart_start(tl_h5 *f)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return tl_fail_errno(f->ctx, "socketpair", f->path);
    f->process = fork();
    if (f->process == 0) {
        restrict_child(ends[1], f->bytes);
        serve_requests(f);
    }
    int error = errno;
    (void)close(ends[1]);
    f->reader = ends[0];
    if (f->process > 0) return TL_OK;
    return tl_fail(f->ctx, TL_ENOMEM, "%s: cannot start a process to read it: %s", f->path,
                   strerror(error));
}

tl_status tl_h5_apart_open(tl_h5 *f)
{
    reply a;
    return ask(f, OPEN, "", 0, &a);
}

void tl_h5_apart_close(tl_h5 *f)
{
    if (f->reader < 0) return;
    (void)close(f->reader);
    (void)kill_child(f);
}

tl_status tl_h5_apart_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                            char *out_kind)
{
    reply a;
    tl_status st = ask(f, CHILD, group, i, &a);
    if (st != TL_OK) return st;
    *out_name = f->name;
    *out_kind = a.kind;
    return TL_OK;
}

tl_status tl_h5_apart_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr)
{
    reply a;
    tl_status st = ask(f, ATTR, object, i, &a);
    if (st == TL_OK)
        *out_attr = (tl_attr){f->name, a.kind, a.i, a.f, a.kind == 's' ? f->text : NULL};
    return st;
}

tl_status tl_h5_apart_read(tl_h5 *f, const char *name, tl_tensor **out_t)
{
    reply a;
    tl_tensor *t = NULL;
    tl_status st = ask(f, READ, name, 0, &a);
    if (st != TL_OK) return st;
    st = tl_tensor_new_host(f->ctx, a.type == TL_F32 ? TL_F32 : TL_I32, a.ndim, a.dims, &t);
    if (st == TL_OK && ((size_t)t->len * 4 != a.text || !receive_all(f->reader, DATA(t), a.text)))
        st = child_lost(f);
    else if (st != TL_OK && !discard(f->reader, a.text))
        (void)kill_child(f);
    return tl_finish(st, t, out_t);
}
