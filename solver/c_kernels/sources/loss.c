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

/* p, raised to epsilon and lowered to 1 - epsilon */
static ap_f32 within(ap_f32 p, ap_f32 epsilon)
{
    return p < epsilon ? epsilon : p > 1.0f - epsilon ? 1.0f - epsilon : p;
}

/* The class of row r; `classes` if it is none */
static size_t label(const void *sparse, size_t bytes, size_t r, size_t classes)
{
    const int64_t value = bytes == 8 ? ((const int64_t *)sparse)[r] : ((const int32_t *)sparse)[r];
    return value >= 0 && value < (int64_t)classes ? (size_t)value : classes;
}

/* The weight of a class in row r: its label, smoothed */
static ap_f32 target(const ap_f32 *dense, size_t own, size_t r, size_t c, size_t classes, ap_f32 smoothing)
{
    const ap_f32 t = dense ? dense[r * classes + c] : own == c ? 1.0f : 0.0f;
    return smoothing > 0.0f ? t * (1.0f - smoothing) + smoothing / (ap_f32)classes : t;
}

/* ln of the sum of e^(x - top) over a row */
static ap_f32 log_sum(const ap_f32 *x, size_t classes, ap_f32 *top)
{
    ap_f32 most = x[0], sum = 0.0f;
    for (size_t c = 1; c < classes; c++)
        if (x[c] > most || !(x[c] == x[c])) most = x[c];
    for (size_t c = 0; c < classes; c++) sum += ap_exp(x[c] - most);
    *top = most;
    return ap_log(sum);
}

void ap_cross_entropy_forward(int from, size_t rows, size_t classes, ap_f32 scale, ap_f32 smoothing, ap_f32 epsilon,
                              const ap_f32 *x, const ap_f32 *dense, const void *sparse, size_t label_bytes, ap_f32 *loss)
{
    ap_f32 total = 0.0f;
    for (size_t r = 0; r < rows; r++, x += classes) {
        const size_t own = sparse ? label(sparse, label_bytes, r, classes) : classes;
        ap_f32 row = 0.0f, top = 0.0f;
        const ap_f32 logarithm = from == AP_LOGITS ? log_sum(x, classes, &top) : 0.0f;
        for (size_t c = 0; c < classes; c++) {
            const ap_f32 t = target(dense, own, r, c, classes, smoothing);
            if (!dense && t == 0.0f) continue;
            row += t * (from == AP_LOGITS ? (x[c] - top) - logarithm : ap_log(clamped(x[c], epsilon)));
        }
        total += sparse && own == classes ? not_a_number() : -row;
    }
    *loss = total * scale;
}

void ap_cross_entropy_backward(int from, size_t rows, size_t classes, ap_f32 scale, ap_f32 smoothing, ap_f32 epsilon,
                               const ap_f32 *x, const ap_f32 *dense, const void *sparse, size_t label_bytes,
                               const ap_f32 *dloss, ap_f32 *dx)
{
    const ap_f32 factor = *dloss * scale;
    for (size_t r = 0; r < rows; r++, x += classes, dx += classes) {
        const size_t own = sparse ? label(sparse, label_bytes, r, classes) : classes;
        if (from == AP_LOGITS) {
            ap_f32 top, weight = 0.0f;
            const ap_f32 logarithm = log_sum(x, classes, &top);
            for (size_t c = 0; c < classes; c++) weight += target(dense, own, r, c, classes, smoothing);
            for (size_t c = 0; c < classes; c++) {
                const ap_f32 p = ap_exp((x[c] - top) - logarithm);
                dx[c] = (p * weight - target(dense, own, r, c, classes, smoothing)) * factor;
            }
        } else
            for (size_t c = 0; c < classes; c++) {
                const ap_f32 t = target(dense, own, r, c, classes, smoothing);
                dx[c] = x[c] < epsilon ? -(t / epsilon) * factor : -(t / x[c]) * factor;
            }
    }
}

void ap_squared_error_forward(size_t count, ap_f32 scale, const ap_f32 *x, const ap_f32 *target_, ap_f32 *loss)
{
    ap_f32 total = 0.0f;
    for (size_t i = 0; i < count; i += 256) { /* sums of 256 elements each, then their sum */
        ap_f32 part = 0.0f;
        for (size_t k = i; k < count && k < i + 256; k++) part += (x[k] - target_[k]) * (x[k] - target_[k]);
        total += part;
    }
    *loss = total * scale;
}

void ap_squared_error_backward(size_t count, ap_f32 scale, const ap_f32 *x, const ap_f32 *target_, const ap_f32 *dloss,
                               ap_f32 *dx, ap_f32 *dtarget)
{
    const ap_f32 factor = *dloss * (2.0f * scale);
    for (size_t i = 0; i < count; i++) {
        const ap_f32 d = (x[i] - target_[i]) * factor;
        if (dtarget) dtarget[i] = -d;
        if (dx) dx[i] = d;
    }
}

void ap_binary_cross_entropy_forward(int from, size_t count, ap_f32 scale, ap_f32 epsilon, const ap_f32 *x,
                                     const ap_f32 *target_, ap_f32 *loss)
{
    ap_f32 total = 0.0f;
    for (size_t i = 0; i < count; i++) {
        if (from == AP_LOGITS) { /* max(x, 0) - x t + ln(1 + e^-|x|) */
            const ap_f32 size = x[i] < 0.0f ? -x[i] : x[i];
            total += (x[i] > 0.0f ? x[i] : 0.0f) - x[i] * target_[i] + ap_log(1.0f + ap_exp(-size));
        } else {
            const ap_f32 p = within(x[i], epsilon), q = 1.0f - p;
            total += -(target_[i] * ap_log(p) + (1.0f - target_[i]) * ap_log(q));
        }
    }
    *loss = total * scale;
}

void ap_binary_cross_entropy_backward(int from, size_t count, ap_f32 scale, ap_f32 epsilon, const ap_f32 *x,
                                      const ap_f32 *target_, const ap_f32 *dloss, ap_f32 *dx)
{
    const ap_f32 factor = *dloss * scale;
    for (size_t i = 0; i < count; i++) {
        if (from == AP_LOGITS)
            dx[i] = (ap_sigmoid(x[i]) - target_[i]) * factor;
        else {
            const ap_f32 p = within(x[i], epsilon), q = 1.0f - p;
            dx[i] = ((1.0f - target_[i]) / q - target_[i] / p) * factor;
        }
    }
}
