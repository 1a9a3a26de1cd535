// Makes one jar of our classes and the libraries, with every library moved below org.flinkndb.shaded.
// Called by build.gradle: run(ourFolders, libraries, workFolder, target, extraFiles).
import java.util.jar.JarEntry
import java.util.jar.JarFile
import java.util.jar.JarOutputStream
import java.util.zip.CRC32
import java.util.zip.ZipEntry

import me.lucko.jarrelocator.JarRelocator
import me.lucko.jarrelocator.Relocation

class Shade {
    /** Packages of the libraries; a class outside of them and of org.flinkndb fails the build. */
    static final PACKAGES = ['io.grpc', 'io.perfmark', 'com.google', 'org.apache.arrow', 'org.codehaus.mojo',
                             'javax.annotation', 'android.annotation', 'org.checkerframework', 'org.jspecify']
    static final SERVICES = 'META-INF/services/'

    void run(folders, libraries, File work, File target, extras) {
        work.deleteDir()
        work.mkdirs()
        def merged = new File(work, 'merged.jar')
        def contents = new TreeMap<String, byte[]>()
        libraries.sort { it.name }.each { addJar(it, contents) }
        folders.each { addFolder(it, contents) }
        write(merged, contents)
        def relocated = new File(work, 'relocated.jar')
        def rules = PACKAGES.collect { new Relocation(it, 'org.flinkndb.shaded.' + it) }
        new JarRelocator(merged, relocated, rules).run()
        def result = new TreeMap<String, byte[]>()
        addJar(relocated, result)
        extras.each { result['META-INF/' + it.name] = it.bytes }
        check(result.keySet())
        write(target, result)
    }

    void addJar(File jar, Map<String, byte[]> contents) {
        def file = new JarFile(jar)
        try {
            file.entries().each { entry ->
                if (!entry.directory && wanted(entry.name)) {
                    put(contents, entry.name, file.getInputStream(entry).bytes, jar.name)
                }
            }
        } finally {
            file.close()
        }
    }

    void addFolder(File folder, Map<String, byte[]> contents) {
        if (folder.directory) {
            folder.eachFileRecurse(groovy.io.FileType.FILES) {
                put(contents, folder.toPath().relativize(it.toPath()).toString(), it.bytes, folder.name)
            }
        }
    }

    /** No native libraries, no module descriptors, no build leftovers. */
    boolean wanted(String name) {
        def junk = name.startsWith('META-INF/native') || name ==~ /.*\.(so|dll|jnilib|dylib|proto|pom|SF|DSA|RSA|tcnative)/ ||
                name.endsWith('module-info.class') || name.startsWith('META-INF/versions') || name.startsWith('META-INF/maven') ||
                name.startsWith('META-INF/proguard') || name.startsWith('META-INF/com.android') ||
                name == 'META-INF/MANIFEST.MF' || name == 'META-INF/INDEX.LIST' || name.startsWith('META-INF/native-image')
        !junk
    }

    /** Service files of several libraries are joined, licences kept side by side. */
    void put(Map<String, byte[]> contents, String name, byte[] bytes, String from) {
        if (name.startsWith(SERVICES) && contents.containsKey(name)) {
            contents[name] = (new String(contents[name]).trim() + '\n' + new String(bytes).trim() + '\n').bytes
        } else if (name ==~ /(META-INF\/)?(LICENSE|NOTICE|license\/.*)(\.txt)?/) {
            contents['META-INF/licenses/' + from + '/' + name.replaceAll('META-INF/', '')] = bytes
        } else {
            contents[name] = bytes
        }
    }

    void check(Set<String> names) {
        def strays = names.findAll { it.endsWith('.class') && !it.startsWith('org/flinkndb/') }
        if (strays) {
            throw new IllegalStateException("classes outside of org.flinkndb: ${strays.take(5)}")
        }
    }

    /** Sorted, with fixed times: the same input gives the same bytes. */
    void write(File target, Map<String, byte[]> contents) {
        def out = new JarOutputStream(target.newOutputStream())
        out.level = 9
        contents.each { name, bytes ->
            def entry = new JarEntry(name)
            entry.time = 315532800000L + 86400000L // 1980-01-02: the first day that zip knows, in any zone
            out.putNextEntry(entry)
            out.write(bytes)
            out.closeEntry()
        }
        out.close()
    }
}

new Shade()
