// What all pages share: each loads it before its own script.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]/g;

/** Text with its control and direction characters made visible, as `visible` of raisf.utils.text does. */
function visible(text) {
  return String(text).replace(HIDDEN, (one) => {
    const code = one.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "␡";
    return code < 0xa0 ? `\\x${code.toString(16)}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}
