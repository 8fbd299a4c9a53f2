/* An error: a code for programs, a message that a person can act on, and what was at fault.
 *
 * An error is made where the fault is seen and passed up whole. Functions that can fail return 0 or a count
 * on success and -1 on failure with the error filled in; `error` may be NULL where the caller does not care.
 */
#ifndef FLYTUNE_PROTO_ERROR_H
#define FLYTUNE_PROTO_ERROR_H

#include <stdbool.h>

/* The codes in use. A code is one word, never reworded once released: programs compare it. */
#define FT_E_BAD_FRAME "bad_frame"     /* the bytes are no MessagePack-RPC message within the bounds */
#define FT_E_BAD_REQUEST "bad_request" /* a parameter is missing, of the wrong type or repeated */
#define FT_E_BAD_VALUE "bad_value"     /* a value is outside its bounds */
#define FT_E_UNKNOWN_METHOD "unknown_method"
#define FT_E_UNKNOWN_KERNEL "unknown_kernel"
#define FT_E_UNKNOWN_FIELD "unknown_field" /* a problem field that the kernel's schema does not have */
#define FT_E_UNKNOWN_KNOB "unknown_knob"
#define FT_E_UNKNOWN_DEVICE "unknown_device"
#define FT_E_UNKNOWN_JOB "unknown_job"
#define FT_E_PROTOCOL "protocol" /* no protocol version in common, or hello not first */
#define FT_E_BUSY "busy"         /* too many clients, a full queue, a quota */
#define FT_E_DENIED "denied"
#define FT_E_UNAVAILABLE "unavailable" /* the daemon, a device or the store cannot do this now */
#define FT_E_STOPPING "stopping"       /* not done, and the daemon goes away: the next one can be asked */
#define FT_E_AWAY "daemon_away"        /* made by the client library: nobody answers */
#define FT_E_TIMEOUT "timeout"
#define FT_E_GENERATION "generation_unavailable"
#define FT_E_CANCELLED "cancelled"
#define FT_E_RUNNER "runner" /* a runner crashed, hung or answered nonsense */
#define FT_E_STORE "store"   /* the store refused: full, damaged, newer, not writable */
#define FT_E_SYSTEM "system" /* an operating system call failed */
#define FT_E_MEMORY "out_of_memory"

struct ft_error {
	char code[32];
	char message[320]; /* a whole sentence without a full stop; names the field, the value and the bound
	                    */
	char field[48];    /* "" unless one field is at fault */
	char value[64];    /* the value that was refused, cut to fit */
	char bound[64];    /* what would have been accepted */
};

/* Fills `error` and returns -1, so that a caller can `return ft_fail(...)`. */
int ft_fail(struct ft_error *error, const char *code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* As ft_fail, for one field; the message becomes "FIELD is VALUE; it must be BOUND". `bound` may be NULL. */
int ft_fail_field(
        struct ft_error *error, const char *code, const char *field, const char *value, const char *bound);

/* As ft_fail with code "system": appends ": " and the text of the errno value `number`. */
int ft_fail_errno(struct ft_error *error, int number, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* What a peer or a file says ends up in logs, on terminals and in JSON: takes line breaks, escapes, other controls and what is
 * no UTF-8 out of a text, a ? for each byte. Errors made by the functions above are plain. */
void ft_make_plain(char *text);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: tell it what these return, or it follows paths that cannot be. */
static inline int ft_failed(int failure)
{
	(void)failure;
	return -1;
}
#define ft_fail(...) ft_failed(ft_fail(__VA_ARGS__))
#define ft_fail_field(...) ft_failed(ft_fail_field(__VA_ARGS__))
#define ft_fail_errno(...) ft_failed(ft_fail_errno(__VA_ARGS__))
#endif

#endif
