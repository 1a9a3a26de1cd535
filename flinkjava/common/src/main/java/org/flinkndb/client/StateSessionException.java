package org.flinkndb.client;

import java.io.IOException;

/** The state server refused, or could not be reached for too long. The message names the remedy. */
public final class StateSessionException extends IOException {
    private static final long serialVersionUID = 1L;

    /** Why, in the words of the wire's ErrorCode without its prefix, for example FENCED. */
    private final String code;

    public StateSessionException(String code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    public String code() {
        return code;
    }
}
