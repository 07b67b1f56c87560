// What a mask may be. Owns that rule alone. Must not mask anything.

/** What makes a mask unfit for every format; empty where it is fit. */
export const maskFault = (mask: string): string =>
  mask === '' ? 'the mask is empty'
    : /[\p{Cc}\p{Zl}\p{Zp}]/u.test(mask) ? 'the mask holds a control character or a line break'
      : /\p{Cs}/u.test(mask) ? 'the mask holds half of a surrogate pair'
        : '';

/**
 * What makes a mask unfit for a new policy. A mask must be told from what a person or model would type, since a request
 * that writes a mask back is a sign of harm; files in the older line format keep the masks they have.
 */
export const strictMaskFault = (mask: string): string => {
  const fault = maskFault(mask);
  if (fault !== '') return fault;
  if ([...mask].length < 8) return 'the mask is shorter than 8 characters';
  return /^[ -~]*$/.test(mask) ? 'the mask is plain ASCII, so ordinary text could be taken for it' : '';
};
