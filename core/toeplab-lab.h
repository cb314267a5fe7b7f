/* toeplab-lab.h - the public API of libtoeplab-lab, the library of a laboratory above libtoeplab.
**
** It encodes text, draws the data sets of two tasks, reads sets of images, reads and writes files
** of tensors, and keeps the store of runs. It needs HDF5, SQLite and PCRE2, and libtoeplab of the
** same version. The conventions of toeplab.h hold. */
#ifndef TOEPLAB_LAB_H
#define TOEPLAB_LAB_H

#include "toeplab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the versions of hdf5, sqlite and pcre2, one "name version" line each, and returns buf. */
TL_API const char *tl_lab_info(char *buf, size_t size);

/* ---- Text ------------------------------------------------------------------------------------ */

typedef struct tl_vocab tl_vocab; /* A vocabulary maps ids to token strings and texts to ids. */

/* Creates the vocabulary of 256 tokens in which a byte is its own id. */
TL_API tl_status tl_vocab_new_bytes(tl_ctx *ctx, tl_vocab **out_v);
/* The tokens are the distinct UTF-8 characters of text in code point order. TL_EINVAL: text is
** not UTF-8; the message names the offset. */
TL_API tl_status tl_vocab_new_chars(tl_ctx *ctx, const char *text, size_t bytes, tl_vocab **out_v);
/* Reads GPT-2's byte pair encoding from its files. merges is vocab.bpe or a file that
** tl_bpe_train wrote. encoder is encoder.json; if NULL, ids are 0..255 for the bytes in GPT-2's
** order, then one per merge. dictionary is fairseq's dict.txt or NULL: with it, ids are its
** rows, each line of a text is stripped of white space and ended by </s>, and the size is a
** multiple of 8 (50264 for GPT-2's files). Without it, encoding and decoding preserve any bytes.
** TL_ECORRUPT: a file is damaged; the message names the file and the line. TL_ENOTFOUND: a file is
** missing. TL_EINVAL: one is not a plain file. TL_EIO: one cannot be read. */
TL_API tl_status tl_vocab_new_bpe(tl_ctx *ctx, const char *merges, const char *encoder,
                                  const char *dictionary, tl_vocab **out_v);
TL_API void tl_vocab_free(tl_vocab *v);
TL_API int32_t tl_vocab_size(const tl_vocab *v);
TL_API int32_t tl_vocab_eos(const tl_vocab *v); /* the token that ends a line, or -1 */
/* Returns the bytes that id decodes to, which v owns; NULL if id is out of range. */
TL_API const char *tl_vocab_token(const tl_vocab *v, int32_t id, size_t *out_bytes);
/* Encodes text as ids [n]. TL_ENOTFOUND: the vocabulary lacks a character; the message names the
** first such character and its offset. */
TL_API tl_status tl_vocab_encode(tl_vocab *v, const char *text, size_t bytes, tl_tensor **out_ids);

/* An encoder does the same for a text that arrives in parts, split anywhere. It stores only ids. */
typedef struct tl_encoder tl_encoder;

TL_API tl_status tl_encoder_new(tl_vocab *v, tl_encoder **out_e); /* keeps v alive */
TL_API tl_status tl_encoder_feed(tl_encoder *e, const char *text, size_t bytes);
TL_API int64_t tl_encoder_count(const tl_encoder *e); /* number of ids so far */
/* Ends the text and returns its ids; call it once. */
TL_API tl_status tl_encoder_finish(tl_encoder *e, tl_tensor **out_ids);
TL_API void tl_encoder_free(tl_encoder *e);

/* A counter counts what a vocabulary is built from: the distinct words of a text, separated by
** spaces and line ends, or the pieces in which GPT-2 merges bytes. The text arrives in parts. */
typedef struct tl_counter tl_counter;
typedef enum tl_counter_kind { TL_COUNT_WORDS, TL_COUNT_PIECES } tl_counter_kind;

TL_API tl_status tl_counter_new(tl_ctx *ctx, tl_counter_kind kind, tl_counter **out_c);
TL_API tl_status tl_counter_feed(tl_counter *c, const char *text, size_t bytes);
TL_API int32_t tl_counter_size(const tl_counter *c); /* number of distinct entries so far */
TL_API void tl_counter_free(tl_counter *c);
/* Ends the text and returns the vocabulary of the counted words, most frequent first, followed
** by <eos> for the end of a line and <unk> for unknown words, unless the text has them. Decoded
** lines look like WikiText's: " word word \n". */
TL_API tl_status tl_vocab_new_words(tl_counter *c, tl_vocab **out_v);
/* Ends the text, learns byte pairs until there are size tokens including the 256 bytes (Sennrich et
** al. 2016), and writes the merges to path for tl_vocab_new_bpe. TL_EINVAL: the text yields
** fewer. */
TL_API tl_status tl_bpe_train(tl_counter *c, int32_t size, const char *path);

/* The tokens are <pad>, <unk> and <eos>, with ids 0, 1, 2, and then the characters that occur in
** text at least `least` times, most frequent first. Other characters encode as <unk>. TL_EINVAL:
** text is not UTF-8. */
TL_API tl_status tl_vocab_new_frequent(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                                       tl_vocab **out_v);

/* Makes a padded batch. Sequence k is ids[starts[k] .. starts[k+1]-1]. Row i is sequence index[i],
** cut so that it and the token end (none if negative) fit into n, and filled up with pad;
** lengths[i] counts the tokens before the padding.
**   ids [t]   starts [k+1]   index [b], all int32   rows [b,n]   lengths [b]
** TL_EINVAL: starts or index is out of range. */
TL_API tl_status tl_pad_rows(tl_tensor *ids, tl_tensor *starts, tl_tensor *index, int64_t n,
                             int32_t end, int32_t pad, tl_tensor **out_rows,
                             tl_tensor **out_lengths);
typedef enum tl_smoothing { TL_WITTEN_BELL, TL_KNESER_NEY } tl_smoothing;
/* Computes the bits per token of an interpolated n-gram on test after train, by Witten-Bell or by
** modified Kneser-Ney smoothing; order 0 is uniform. Kneser-Ney also takes rows: the order-1 tokens
** before a token, the nearest last, and the token. In a row -1 marks an absent token; those further
** away are ignored.   train, test [t] or [t,order] int32
** TL_EINVAL: an id is outside 0..v-1, order is out of range, or test is empty. */
TL_API tl_status tl_ngram_bits(tl_tensor *train, tl_tensor *test, int order, int32_t v,
                               tl_smoothing smoothing, double *out_bits);

/* ---- ListOps --------------------------------------------------------------------------------- */
/* Nested lists of digits under MIN, MAX, MED (the median, rounded down) and SM (the sum modulo
** 10), written as "( ( ( [MAX 2 ) 9 ) ] )" with parentheses that carry no information. Tokens
** are 3..12 for the digits, 13..16 for [MIN [MAX [MED [SM, and 17 for ], which a text may also
** write as X; ids 0..2 are free for padding. */

#define TL_LISTOPS_TOKENS 18

typedef struct tl_listops {
    size_t bytes; /* sizeof(tl_listops) */
    uint64_t seed;
    int64_t count;
    int64_t min_length, max_length; /* in tokens, inclusive; Long Range Arena: 501, 1999 */
    int max_depth, max_args;        /* Long Range Arena: 10, 10 */
} tl_listops;

/* Draws count distinct expressions by the rules of Long Range Arena's generator. Expression i is
** ids[starts[i] .. starts[i+1]-1], and answers[i] is its value. A smaller count gives the first
** expressions of a larger one.
**   ids [t]   starts [count+1]   answers [count], all int32
** TL_EINVAL: an option is out of range, or too few distinct expressions exist. */
TL_API tl_status tl_listops_draw(tl_ctx *ctx, const tl_listops *o, tl_tensor **out_ids,
                                 tl_tensor **out_starts, tl_tensor **out_answers);
/* The tokens of one expression. TL_EINVAL: text is not an expression; the message says where. */
TL_API tl_status tl_listops_parse(tl_ctx *ctx, const char *text, size_t bytes, tl_tensor **out_ids);
/* Evaluates the expression ids[first .. first+n-1]. TL_EINVAL: it is not an expression. */
TL_API tl_status tl_listops_value(const tl_tensor *ids, int64_t first, int64_t n, int *out_value);
/* Writes it as text of at most size bytes, without a NUL; *out_bytes is the full length. */
TL_API tl_status tl_listops_text(const tl_tensor *ids, int64_t first, int64_t n, char *text,
                                 size_t size, size_t *out_bytes);

/* ---- Images ---------------------------------------------------------------------------------- */

/* A set of images of equal size, one byte per pixel. */
typedef struct tl_images tl_images;

/* Copies the images that lie one after another in data. TL_EINVAL: bytes is not a multiple of
** size. */
TL_API tl_status tl_images_new(tl_ctx *ctx, const void *data, size_t bytes, int64_t size,
                               tl_images **out_images);
/* Opens count images of size bytes in the file at path: image i, from 0, begins at byte
** offset + i stride. The set keeps the file open and reads pixels from it each time they are asked
** for, so nobody may write to the file as long as the set exists.
** TL_ENOTFOUND: there is no such file. TL_ECORRUPT: it is too short. TL_EINVAL: a number is out of
** range. */
TL_API tl_status tl_images_open(tl_ctx *ctx, const char *path, int64_t offset, int64_t stride,
                                int64_t count, int64_t size, tl_images **out_images);
TL_API void tl_images_free(tl_images *images);
TL_API int64_t tl_images_count(const tl_images *images);
TL_API int64_t tl_images_size(const tl_images *images); /* bytes of an image */
/* Copies image i to pixels [size]. TL_EINVAL: there is no image i. TL_ECORRUPT: the file has been
** cut short. TL_EIO: it cannot be read. */
TL_API tl_status tl_images_pixels(const tl_images *images, int64_t i, uint8_t *pixels);
/* ids[j] = the pixels of image index[j], 0..255   index [b]   ids [b,size], both int32
** TL_EINVAL: an index is out of range. TL_ECORRUPT, TL_EIO: as for tl_images_pixels. */
TL_API tl_status tl_images_batch(const tl_images *images, const tl_tensor *index,
                                 tl_tensor **out_ids);
/* Says that the bytes of an image are its pixels row by row, each with its channels one after
** another; tl_images_pixels and tl_images_batch then return the channels one after another, each
** row by row. TL_EINVAL: the size is not a multiple of channels. */
TL_API tl_status tl_images_interleaved(tl_images *images, int64_t channels);

/* The operations of RandAugment (Cubuk et al. 2020) as timm composes them, and their amounts. */
typedef enum tl_alter {
    TL_ALTER_NONE,
    TL_ALTER_AUTOCONTRAST, /* levels of a channel are stretched to 0..255 */
    TL_ALTER_EQUALIZE,     /* levels of a channel become about as frequent */
    TL_ALTER_INVERT,
    TL_ALTER_POSTERIZE,    /* bits of a level that are kept, 0 to 8 */
    TL_ALTER_SOLARIZE,     /* levels from this one on are inverted */
    TL_ALTER_SOLARIZE_ADD, /* added to levels below 128 */
    TL_ALTER_COLOR,        /* these four: a factor of the difference to a plainer image: grey, */
    TL_ALTER_CONTRAST,     /* the mean grey, */
    TL_ALTER_BRIGHTNESS,   /* black, */
    TL_ALTER_SHARPNESS,    /* smoothed */
    TL_ALTER_ROTATE,       /* degrees, counterclockwise */
    TL_ALTER_SHEAR_X,      /* pixels to the left per row */
    TL_ALTER_SHEAR_Y,      /* pixels upwards per column */
    TL_ALTER_TRANSLATE_X,  /* to the left, as a share of the width */
    TL_ALTER_TRANSLATE_Y   /* upwards, as a share of the height */
} tl_alter;

/* Alters each image of ids [b, c height width], levels 0..255, channel by channel, c = 1 or 3, by
** k operations one after another, as the Python library Pillow computes them; movements interpolate
** cubically. operations [b,k] int32 are of tl_alter, amounts [b,k] float32, fill [c] int32 the
** levels beyond the edge. out_ids has the shape of ids. TL_ETYPE, TL_ESHAPE, TL_EINVAL: something
** is not as described here. */
TL_API tl_status tl_images_alter(const tl_tensor *ids, int64_t channels, int64_t height,
                                 int64_t width, const tl_tensor *operations,
                                 const tl_tensor *amounts, const tl_tensor *fill,
                                 tl_tensor **out_ids);

/* Pathfinder (Linsley et al. 2018): grey images with dashed contours and two disks. The label is 1
** if the disks lie on the ends of one contour, 0 if on those of two. */
typedef struct tl_pathfinder {
    size_t bytes; /* sizeof(tl_pathfinder) */
    int64_t size; /* 32, 64, 128 (Path-X) or 256: the settings of Long Range Arena, 14 segments */
    uint64_t seed;
    int64_t first, count; /* draws the images first .. first + count - 1 */
} tl_pathfinder;

enum { /* the facts of an image: a column of facts each, except that the markers take four */
    /* row and column of the disk on the tail of a contour's first segment, then row and column of
    ** the disk on the head of a last segment, of the same contour if the label is 1 */
    TL_FACT_MARKERS,
    /* half the gap between two segments of a contour, in pixels; columns 0 to 3 are the markers */
    TL_FACT_MARGIN = 4,
    /* the pairs of contours that were tried until one fitted into the image, and how many of them
    ** failed already because their first segments found no place */
    TL_FACT_PAIRS, TL_FACT_NO_SEEDS,
    /* the distractors that were tried, and those of them that fitted and were drawn */
    TL_FACT_TRIES, TL_FACT_DISTRACTORS,
    /* the largest and the smallest brightness before it was stretched to 0..255 */
    TL_FACT_PEAK, TL_FACT_FLOOR,
    TL_PATHFINDER_FACTS
};

/* Draws images of size*size pixels. Image i depends on size, seed and i alone. out_facts and
** out_paths may be NULL. A path is the tail and the head of each segment: row, column, row, column.
**   labels [count] int32   facts [count,TL_PATHFINDER_FACTS]   paths [count,2,14,4] int32
** TL_EINVAL: an option is out of range. */
TL_API tl_status tl_pathfinder_draw(tl_ctx *ctx, const tl_pathfinder *o, tl_images **out_images,
                                    tl_tensor **out_labels, tl_tensor **out_facts,
                                    tl_tensor **out_paths);

/* ---- Files of tensors ------------------------------------------------------------------------ */

typedef struct tl_attr {
    const char *name;
    char kind; /* 'i' integer, 'f' number, 's' text */
    int64_t i;
    double f;
    const char *s;
} tl_attr;

/* Writes an HDF5 file with one dataset per tensor (names may contain '/') and attributes on its
** root group, atomically as tl_file_write does. Large datasets carry a Fletcher32 checksum; packed:
** they are compressed as well. TL_EINVAL: HDF5 takes no such names. Else as tl_file_write. */
TL_API tl_status tl_h5_write(tl_ctx *ctx, const char *path, int count, const char *const *names,
                             tl_tensor *const *tensors, int attr_count, const tl_attr *attrs,
                             int packed);

/* An HDF5 file open for reading. Strings that it returns are invalid after tl_h5_close. */
typedef struct tl_h5 tl_h5;

/* Opens path. TL_ENOTFOUND: there is no such file. TL_ECORRUPT: it is not a valid HDF5 file. */
TL_API tl_status tl_h5_open(tl_ctx *ctx, const char *path, tl_h5 **out_file);
TL_API void tl_h5_close(tl_h5 *file);
/* Reports child i of a group in name order: its name (valid until the next call) and its kind,
** 'g' for a group, 'd' for a dataset or '?' for what tl_h5_read cannot read (a dangling link, a
** named type). TL_ENOTFOUND: there is no child i. TL_EINVAL: there is no such group. */
TL_API tl_status tl_h5_child(tl_h5 *file, const char *group, int64_t i, const char **out_name,
                             char *out_kind);
/* Reports attribute i of an object in name order; strings are valid until the next call, and
** booleans are returned as integers. TL_ENOTFOUND: there is no attribute i. TL_EINVAL: there is
** no such object. */
TL_API tl_status tl_h5_attr(tl_h5 *file, const char *object, int64_t i, tl_attr *out_attr);
/* Reads a dataset of floats of any width as float32, or of integers as int32. TL_ENOTFOUND: there
** is none. TL_EINVAL: it is a group, a link or in other files. TL_ETYPE: no numbers, or some that
** do not fit into 32 bits. TL_ESHAPE: null, or too many axes. TL_ECORRUPT: it is damaged. */
TL_API tl_status tl_h5_read(tl_h5 *file, const char *name, tl_tensor **out_t);

/* Raw elements belong to files that have no reader of their own in this library, such as
** safetensors and .npy. The names of types are safetensors': F32 F64 F16 BF16 F8_E4M3 F8_E5M2, read
** as float32, and I32 I64 I16 I8 U64 U32 U16 U8 BOOL, read as int32. */

TL_API size_t tl_raw_bytes(const char *type); /* the bytes of an element; 0: no such type */
/* Reads the elements of a tensor that lie one after another from byte offset of the file on.
** TL_ETYPE: no such type, an element does not fit into 32 bits, or one of BOOL is neither 0 nor 1.
** TL_ECORRUPT: the file is too short. TL_ENOTFOUND: there is none. */
TL_API tl_status tl_raw_read(tl_ctx *ctx, const char *path, int64_t offset, const char *type,
                             int ndim, const int64_t *dims, tl_tensor **out_t);

typedef struct tl_raw_part { /* a text, or the elements of a tensor */
    const void *text;
    size_t bytes;
    tl_tensor *tensor; /* NULL: the part is text */
    int bf16;          /* rounds the float32 elements to bfloat16 */
} tl_raw_part;

/* Writes the parts one after another, atomically as tl_file_write does. TL_ETYPE: bf16 of int32. */
TL_API tl_status tl_raw_write(tl_ctx *ctx, const char *path, int count, const tl_raw_part *parts);
/* Returns the CRC-32 of zip files of data that follows data with CRC-32 before, 0 at first. */
TL_API uint32_t tl_crc32(uint32_t before, const void *data, size_t bytes);
/* Expands the deflate stream of packed bytes at an offset of the file at path, and writes the
** result to to_path, another file. TL_ECORRUPT: it is damaged, or does not expand to `bytes` bytes.
** TL_ENOTFOUND: there is no such file, or no folder of to_path. TL_EINVAL: a number is negative. */
TL_API tl_status tl_inflate(tl_ctx *ctx, const char *path, int64_t offset, int64_t packed,
                            const char *to_path, int64_t bytes);

/* ---- The store of runs ----------------------------------------------------------------------- */
/* The store is one SQLite file, runs.db, in a results folder or where tl_store_place says.
** core/store/schema.sql defines the schema and its public views (v_trials, v_metrics, v_last,
** v_artifacts, v_trash, v_members, v_events); PRAGMA user_version is its version. Any number of
** processes write in turns. */

typedef struct tl_store tl_store;

typedef enum tl_store_mode { TL_STORE_READ, TL_STORE_WRITE, TL_STORE_ASK } tl_store_mode;

typedef struct tl_value { /* an SQL value */
    char kind;            /* 'n' null, 'i', 'f', 's' */
    int64_t i;
    double f;
    const char *s;
    size_t bytes; /* length of s */
} tl_value;

/* Opens the store in folder. TL_STORE_ASK reads, and runs a user's SQL, which may take any time.
** TL_STORE_WRITE creates folder and file if needed, and upgrades an older schema after a backup.
** TL_ENOTFOUND: there is no store. TL_ELOCKED: another process writes for seconds; the message has
** its pid. TL_ECORRUPT: the schema is not Toeplab's, newer than this library, or older and not
** to be upgraded in this mode; or there are links. */
TL_API tl_status tl_store_open(tl_ctx *ctx, const char *folder, tl_store_mode mode,
                               tl_store **out_store);
/* Writes the path of the folder that holds runs.db of a results folder: that itself or, where
** TOEPLAB_INDEX is set or other machines may use the folder (a file system of a network), one of
** this machine: index/HASH in TOEPLAB_INDEX, in the cache or, where that is on a network, too, in
** /var/tmp/toeplab-UID. TL_EINVAL: too long a name. */
TL_API tl_status tl_store_place(tl_ctx *ctx, const char *folder, char *out, size_t bytes);
/* TL_ECORRUPT: runs.db*, lock or runs is a link or of a wrong type. TL_EINVAL: too long a path. */
TL_API tl_status tl_store_check_folder(tl_ctx *ctx, const char *folder);
TL_API void tl_store_close(tl_store *store); /* rolls back an open transaction */
/* Runs one SQL statement with count values for its ? parameters and passes each row to row (may
** be NULL), which returns 0 to continue. Strings passed to row are valid during the call only.
** TL_EINVAL: sql is not one valid statement that the store admits, or count does not match.
** TL_ELOCKED: another process is in the way. TL_ENOSPC, TL_ECORRUPT, TL_EIO: as SQLite reports. */
typedef int (*tl_row)(void *user, int columns, const char *const *names, const tl_value *values);
TL_API tl_status tl_store_exec(tl_store *store, const char *sql, int count, const tl_value *values,
                               tl_row row, void *user);
/* A statement that runs for seconds polls stopped(user) and ends with TL_EINVAL once it returns
** nonzero. Except in mode TL_STORE_ASK, a statement also ends with TL_ECORRUPT when it takes more
** steps or returns more rows than the size of its file can explain. */
TL_API void tl_store_watch(tl_store *store, int (*stopped)(void *user), void *user);
/* Checks that writes still reach the store. TL_ENOTFOUND: the database was replaced or removed
** since it was opened; TL_EIO: the lock file or SQLite's log was. */
TL_API tl_status tl_store_check(const tl_store *store);

#ifdef __cplusplus
}
#endif
#endif
