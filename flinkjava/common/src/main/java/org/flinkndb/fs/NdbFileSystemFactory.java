package org.flinkndb.fs;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.FileSystemFactory;

import java.net.URI;

/** Makes the file system for {@code ndb://} paths. Found by Flink through META-INF/services. */
public final class NdbFileSystemFactory implements FileSystemFactory {
    private final PendingReleases releases = new PendingReleases();
    private Configuration configuration = new Configuration();

    @Override
    public String getScheme() {
        return "ndb";
    }

    /** Keeps the cluster's configuration; it is checked at first use, since failing here ends the process. */
    @Override
    public void configure(Configuration config) {
        configuration = config;
    }

    @Override
    public FileSystem create(URI uri) {
        return new NdbFileSystem(uri, configuration, releases);
    }
}
