/* http.c - a module of Lua: serves texts that Lua has set, by HTTP on the loopback interface alone.
** A thread of libmicrohttpd answers from the texts as they are, and never calls Lua. Every path
** begins with a secret token, so that other users of the machine, and pages of other sites in the
** user's browser, get nothing. Only GET and HEAD are answered, no file is read, no body is taken.
**
**   server = open(port, token)   port 0: any free one; nil and the reason if it cannot listen
**   server:port()
**   server:set(name, type, text) what GET /TOKEN/name returns from now on, with its media type
**   server:close() */
#include <arpa/inet.h>
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER           "toeplab.server"
#define MAX_PAGES        64
#define CALLERS          512 /* connections */
#define IDLE_SECONDS     10  /* until an idle connection is closed */
#define STRANGER_SECONDS 2   /* the same for a stranger's */
#define BYTES            (64u << 10) /* of memory for a connection: longer requests are refused */

__attribute__((visibility("default"))) int luaopen_toeplab_http(lua_State *L);

typedef struct page {
    char  *name, *type, *text;
    size_t size;
} page;

typedef struct server {
    struct MHD_Daemon *daemon; /* NULL: closed */
    pthread_mutex_t    lock;   /* of the pages, which the thread reads */
    page               pages[MAX_PAGES];
    int                count, port;
    char               token[128];
} server;

/* ---- The thread that answers ----------------------------------------------------------------- */

/* Compares in a time that does not depend on where the texts differ. */
static int same_token(const char *given, size_t length, const char *token)
{
    size_t        size = strlen(token);
    unsigned char differs = length != size;
    for (size_t i = 0; i < size; i++)
        differs |= (unsigned char)(token[i] ^ (i < length ? given[i] : 0));
    return !differs;
}

static struct MHD_Response *response_of(const char *text, size_t size, const char *type)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(size, (void *)text,
                                                             MHD_RESPMEM_MUST_COPY);
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src "
                                    "'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
                                    "form-action 'none'; frame-ancestors 'none'"},
    };
    for (size_t i = 0; r && i < sizeof headers / sizeof *headers; i++)
        (void)MHD_add_response_header(r, headers[i][0], headers[i][1]);
    if (r) (void)MHD_add_response_header(r, "Content-Type", type);
    return r;
}

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, const char *text,
                                 size_t size, const char *type)
{
    struct MHD_Response *r = response_of(text, size, type);
    if (!r) return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) (void)MHD_add_response_header(r, "Allow", "GET");
    if (status == MHD_HTTP_FORBIDDEN) /* a stranger keeps no connection from others */
        (void)MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result send_error(struct MHD_Connection *c, unsigned status, const char *text)
{
    return send_text(c, status, text, strlen(text), "text/plain; charset=utf-8");
}

/* The name of the host in a request must be a name of the loopback interface: a page of another
** site whose name is made to lead here (DNS rebinding) then gets nothing even if it knows the
** token. */
static int is_local(struct MHD_Connection *c)
{
    static const char *const names[] = {"127.0.0.1", "localhost"};
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    for (size_t i = 0; host && i < 2; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(host, names[i], n) == 0 && (host[n] == ':' || host[n] == '\0')) return 1;
    }
    return 0;
}

static enum MHD_Result answer(void *user, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *body,
                              size_t *body_size, void **state)
{
    server     *s = user;
    const char *token = path[0] == '/' ? path + 1 : "", *slash = strchr(token, '/');
    int         is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    (void)version;
    (void)body;
    if (!*state) { /* the headers are read; MHD calls again for the rest */
        *state = s;
        if (is_get) return MHD_YES;
        return send_error(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is answered\n");
    }
    if (*body_size > 0) return MHD_NO; /* closes the connection */
    if (!is_local(c) || !slash || !same_token(token, (size_t)(slash - token), s->token))
        return send_error(c, MHD_HTTP_FORBIDDEN, "the address lacks the token that was printed\n");
    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_SECONDS);
    enum MHD_Result done = MHD_NO;
    int             found = 0;
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->count && !found; i++) {
        const page *p = &s->pages[i];
        found = strcmp(p->name, slash + 1) == 0;
        if (found) done = send_text(c, MHD_HTTP_OK, p->text, p->size, p->type);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return found ? done : send_error(c, MHD_HTTP_NOT_FOUND, "there is no such page\n");
}

/* ---- The server ------------------------------------------------------------------------------ */

static server *check_server(lua_State *L)
{
    server *s = luaL_checkudata(L, 1, SERVER);
    luaL_argcheck(L, s->daemon, 1, "the server is closed");
    return s;
}

static void free_page(page *p)
{
    free(p->name);
    free(p->type);
    free(p->text);
}

static int close_server(lua_State *L)
{
    server *s = luaL_checkudata(L, 1, SERVER);
    if (!s->daemon) return 0;
    MHD_stop_daemon(s->daemon); /* waits for its thread */
    s->daemon = NULL;
    for (int i = 0; i < s->count; i++) free_page(&s->pages[i]);
    (void)pthread_mutex_destroy(&s->lock);
    return 0;
}

static int failure(lua_State *L, int port, int error)
{
    lua_pushnil(L);
    lua_pushfstring(L, "cannot listen on 127.0.0.1:%d: %s", port, strerror(error));
    return 2;
}

/* Returns a socket that listens on a port of the loopback interface; < 0: errno says why not. */
static int listen_on(int port, int *out_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          size = sizeof at;
    int                on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, CALLERS) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &size) == 0) {
        *out_port = ntohs(at.sin_port);
        return fd;
    }
    int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

static int open_server(lua_State *L)
{
    lua_Integer port = luaL_checkinteger(L, 1);
    size_t      length;
    const char *token = luaL_checklstring(L, 2, &length);
    server     *s = lua_newuserdatauv(L, sizeof *s, 0);
    memset(s, 0, sizeof *s);
    luaL_setmetatable(L, SERVER);
    luaL_argcheck(L, port >= 0 && port <= 65535, 1, "not in 0..65535");
    luaL_argcheck(L, length >= 16 && length < sizeof s->token, 2, "must have 16 to 127 characters");
    memcpy(s->token, token, length);
    int fd = listen_on((int)port, &s->port);
    if (fd < 0) return failure(L, (int)port, errno);
    int error = pthread_mutex_init(&s->lock, NULL);
    if (error) {
        (void)close(fd);
        return failure(L, (int)port, error);
    }
    errno = 0;
    s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, s,
                                 MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)CALLERS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STRANGER_SECONDS,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BYTES,
                                 MHD_OPTION_END);
    if (s->daemon) return 1;
    error = errno ? errno : ENOMEM; /* MHD does not always say why */
    (void)close(fd);
    (void)pthread_mutex_destroy(&s->lock);
    return failure(L, (int)port, error);
}

static int port_of(lua_State *L)
{
    lua_pushinteger(L, check_server(L)->port);
    return 1;
}

static int set_page(lua_State *L)
{
    server     *s = check_server(L);
    size_t      size;
    const char *name = luaL_checkstring(L, 2), *type = luaL_checkstring(L, 3);
    const char *text = luaL_checklstring(L, 4, &size);
    page        p = {strdup(name), strdup(type), malloc(size + 1), size};
    int         i = 0;
    if (p.text) memcpy(p.text, text, size);
    (void)pthread_mutex_lock(&s->lock);
    while (i < s->count && strcmp(s->pages[i].name, name) != 0) i++;
    int fine = p.name && p.type && p.text && i < MAX_PAGES;
    if (fine && i < s->count) free_page(&s->pages[i]);
    if (fine) s->pages[i] = p;
    if (fine && i == s->count) s->count++;
    (void)pthread_mutex_unlock(&s->lock);
    if (fine) return 0;
    free_page(&p);
    return luaL_error(L, i == MAX_PAGES ? "too many pages" : "out of memory");
}

int luaopen_toeplab_http(lua_State *L)
{
    static const luaL_Reg functions[] = {{"open", open_server}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"port", port_of}, {"set", set_page}, {"close", close_server}, {NULL, NULL}};
    luaL_newmetatable(L, SERVER);
    lua_pushcfunction(L, close_server);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, close_server);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
