#include "ap.h"

void ap_softmax_forward(const ap_rows *s, const ap_f32 *x, ap_f32 *y)
{
    for (size_t o = 0; o < s->outer; o++)
        for (size_t i = 0; i < s->inner; i++) {
            const size_t at = o * s->classes * s->inner + i, step = s->inner;
            ap_f32 top = x[at], sum = 0.0f;
            for (size_t c = 1; c < s->classes; c++)
                if (x[at + c * step] > top || !(x[at + c * step] == x[at + c * step])) top = x[at + c * step];
            for (size_t c = 0; c < s->classes; c++) {
                y[at + c * step] = ap_exp(x[at + c * step] - top);
                sum += y[at + c * step];
            }
            for (size_t c = 0; c < s->classes; c++) y[at + c * step] /= sum;
        }
}

void ap_softmax_backward(const ap_rows *s, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx)
{
    for (size_t o = 0; o < s->outer; o++)
        for (size_t i = 0; i < s->inner; i++) {
            const size_t at = o * s->classes * s->inner + i, step = s->inner;
            ap_f32 sum = 0.0f;
            for (size_t c = 0; c < s->classes; c++) sum += y[at + c * step] * dy[at + c * step];
            for (size_t c = 0; c < s->classes; c++) dx[at + c * step] = (dy[at + c * step] - sum) * y[at + c * step];
        }
}

static ap_f32 not_a_number(void)
{
    const ap_f32 zero = 0.0f * 1.0f;
    return ap_log(zero - 1.0f);
}

static ap_f32 clamped(ap_f32 p, ap_f32 epsilon)
{
    return p < epsilon ? epsilon : p;
}

/* The class of row r; `classes` if it is none */
static size_t label(const ap_classes *s, const void *labels, size_t r)
{
    const int64_t value = s->label_bytes == 8 ? ((const int64_t *)labels)[r] : ((const int32_t *)labels)[r];
    return value >= 0 && value < (int64_t)s->classes ? (size_t)value : s->classes;
}

/* Whether the label of row r says that the row does not count */
static int is_ignored(const ap_classes *s, const void *labels, size_t r)
{
    if (!s->ignores) return 0;
    return (s->label_bytes == 8 ? ((const int64_t *)labels)[r] : ((const int32_t *)labels)[r]) == s->ignored;
}

/* The weight of class c in a row with this label: smoothed */
static ap_f32 target(const ap_classes *s, const ap_f32 *dense, size_t own, size_t c)
{
    const ap_f32 t = dense ? dense[c] : own == c ? 1.0f : 0.0f;
    return s->smoothing > 0.0f ? t * (1.0f - s->smoothing) + s->smoothing / (ap_f32)s->classes : t;
}

/* ln of the sum of e^(x - top) over a row of logits; 0 of probabilities */
static ap_f32 log_sum(const ap_classes *s, const ap_f32 *x, ap_f32 *top)
{
    *top = 0.0f;
    if (!s->from_logits) return 0.0f;
    ap_f32 most = x[0], sum = 0.0f;
    for (size_t c = 1; c < s->classes; c++)
        if (x[c] > most || !(x[c] == x[c])) most = x[c];
    for (size_t c = 0; c < s->classes; c++) sum += ap_exp(x[c] - most);
    *top = most;
    return ap_log(sum);
}

/* The factor of the sum of all rows */
static ap_f32 scale_of(const ap_classes *s, const void *labels)
{
    if (!s->is_mean) return 1.0f;
    size_t count = 0;
    for (size_t r = 0; r < s->rows; r++) count += !is_ignored(s, labels, r);
    return count ? 1.0f / (ap_f32)count : not_a_number();
}

/* ln p of class c */
static ap_f32 log_of(const ap_classes *s, const ap_f32 *x, size_t c, ap_f32 top, ap_f32 logarithm)
{
    return s->from_logits ? (x[c] - top) - logarithm : ap_log(clamped(x[c], s->epsilon));
}

void ap_cross_entropy_forward(const ap_classes *s, const ap_f32 *x, const void *labels, ap_f32 *y)
{
    ap_f32 total = 0.0f;
    for (size_t r = 0; r < s->rows; r++, x += s->classes) {
        const ap_f32 *dense = s->label_bytes ? 0 : (const ap_f32 *)labels + r * s->classes;
        const size_t own = dense ? s->classes : label(s, labels, r);
        ap_f32 row = 0.0f, top;
        const ap_f32 logarithm = log_sum(s, x, &top);
        for (size_t c = 0; c < s->classes; c++) {
            const ap_f32 t = target(s, dense, own, c);
            if (dense || t != 0.0f) row += t * log_of(s, x, c, top, logarithm);
        }
        ap_f32 loss = !dense && own == s->classes ? not_a_number() : -row;
        if (is_ignored(s, labels, r)) loss = 0.0f;
        if (s->each)
            y[r] = loss;
        else
            total += loss;
    }
    if (!s->each) *y = total * scale_of(s, labels);
}

void ap_cross_entropy_backward(const ap_classes *s, const ap_f32 *x, const void *labels, const ap_f32 *dy, ap_f32 *dx)
{
    const ap_f32 scale = scale_of(s, labels);
    for (size_t r = 0; r < s->rows; r++, x += s->classes, dx += s->classes) {
        const ap_f32 *dense = s->label_bytes ? 0 : (const ap_f32 *)labels + r * s->classes;
        const size_t own = dense ? s->classes : label(s, labels, r);
        const ap_f32 factor = (s->each ? dy[r] : *dy) * scale;
        if (is_ignored(s, labels, r)) {
            ap_fill(dx, 0.0f, s->classes);
        } else if (s->from_logits) {
            ap_f32 top, weight = 0.0f;
            const ap_f32 logarithm = log_sum(s, x, &top);
            for (size_t c = 0; c < s->classes; c++) weight += target(s, dense, own, c);
            for (size_t c = 0; c < s->classes; c++) {
                const ap_f32 p = ap_exp((x[c] - top) - logarithm);
                dx[c] = (p * weight - target(s, dense, own, c)) * factor;
            }
        } else
            for (size_t c = 0; c < s->classes; c++)
                dx[c] = -(target(s, dense, own, c) / clamped(x[c], s->epsilon)) * factor;
    }
}

void ap_cross_entropy_by_label(const ap_classes *s, const ap_f32 *x, const ap_f32 *dy, ap_f32 *dt)
{
    const ap_f32 scale = s->is_mean ? 1.0f / (ap_f32)s->rows : 1.0f;
    for (size_t r = 0; r < s->rows; r++, x += s->classes, dt += s->classes) {
        const ap_f32 factor = (s->each ? dy[r] : *dy) * (scale * (1.0f - s->smoothing));
        ap_f32 top;
        const ap_f32 logarithm = log_sum(s, x, &top);
        for (size_t c = 0; c < s->classes; c++) dt[c] = -log_of(s, x, c, top, logarithm) * factor;
    }
}

void ap_divergence_forward(const ap_classes *s, const ap_f32 *x, const ap_f32 *labels, ap_f32 *y)
{
    ap_f32 total = 0.0f;
    for (size_t r = 0; r < s->rows; r++, x += s->classes, labels += s->classes) {
        ap_f32 row = 0.0f, top;
        const ap_f32 logarithm = log_sum(s, x, &top);
        for (size_t c = 0; c < s->classes; c++)
            row += labels[c] * (ap_log(clamped(labels[c], s->epsilon)) - log_of(s, x, c, top, logarithm));
        if (s->each)
            y[r] = row;
        else
            total += row;
    }
    if (!s->each) *y = total * scale_of(s, labels);
}

void ap_divergence_by_label(const ap_classes *s, const ap_f32 *x, const ap_f32 *labels, const ap_f32 *dy, ap_f32 *dt)
{
    const ap_f32 scale = scale_of(s, labels);
    for (size_t r = 0; r < s->rows; r++, x += s->classes, labels += s->classes, dt += s->classes) {
        const ap_f32 factor = (s->each ? dy[r] : *dy) * scale;
        ap_f32 top;
        const ap_f32 logarithm = log_sum(s, x, &top);
        for (size_t c = 0; c < s->classes; c++) {
            const ap_f32 ratio = ap_log(clamped(labels[c], s->epsilon)) - log_of(s, x, c, top, logarithm);
            dt[c] = (ratio + 1.0f) * factor;
        }
    }
}

void ap_log_softmax_forward(const ap_rows *s, const ap_f32 *x, ap_f32 *y)
{
    for (size_t o = 0; o < s->outer; o++)
        for (size_t i = 0; i < s->inner; i++) {
            const size_t at = o * s->classes * s->inner + i, step = s->inner;
            ap_f32 top = x[at], sum = 0.0f;
            for (size_t c = 1; c < s->classes; c++)
                if (x[at + c * step] > top || !(x[at + c * step] == x[at + c * step])) top = x[at + c * step];
            for (size_t c = 0; c < s->classes; c++) sum += ap_exp(x[at + c * step] - top);
            const ap_f32 logarithm = ap_log(sum);
            for (size_t c = 0; c < s->classes; c++) y[at + c * step] = (x[at + c * step] - top) - logarithm;
        }
}

void ap_log_softmax_backward(const ap_rows *s, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx)
{
    for (size_t o = 0; o < s->outer; o++)
        for (size_t i = 0; i < s->inner; i++) {
            const size_t at = o * s->classes * s->inner + i, step = s->inner;
            ap_f32 sum = 0.0f;
            for (size_t c = 0; c < s->classes; c++) sum += dy[at + c * step];
            for (size_t c = 0; c < s->classes; c++)
                dx[at + c * step] = dy[at + c * step] - ap_exp(y[at + c * step]) * sum;
        }
}
