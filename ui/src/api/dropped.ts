// Files out of a drop: folders are walked, so that a folder of shards arrives as one source.

export interface DroppedFile {
  file: File;
  /** `run/layer0/q.npy`: below the dropped folder, the folder's own name first. */
  path: string;
}

export interface Dropped {
  name: string;
  folder: boolean;
  files: DroppedFile[];
}

/** Everything that was dropped, one entry per file or folder. */
export async function dropped(transfer: DataTransfer): Promise<Dropped[]> {
  // Entries must be taken before the first await: afterwards the list is empty.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  const files = [...transfer.files];
  const found: Dropped[] = [];
  for (const [at, entry] of entries.entries()) {
    if (entry !== null) found.push({ name: entry.name, folder: entry.isDirectory, files: await walk(entry, entry.name) });
    else if (files[at]) found.push(single(files[at]));
  }
  return found.length > 0 ? found : files.map(single);
}

export function single(file: File): Dropped {
  return { name: file.name, folder: false, files: [{ file, path: file.name }] };
}

/** The files of an `<input type="file" webkitdirectory>`. */
export function picked(files: readonly File[]): Dropped | null {
  const [first] = files;
  if (!first) return null;
  const path = (file: File) => file.webkitRelativePath || file.name;
  const folder = first.webkitRelativePath !== "";
  if (!folder && files.length === 1) return single(first);
  const name = folder ? (first.webkitRelativePath.split("/")[0] ?? "folder") : "files";
  return { name, folder: true, files: files.map((file) => ({ file, path: folder ? path(file) : `files/${file.name}` })) };
}

async function walk(entry: FileSystemEntry, path: string): Promise<DroppedFile[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
    return [{ file, path }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: DroppedFile[] = [];
  for (;;) {
    // A reader gives a hundred entries at a time, then none.
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (some.length === 0) return found;
    for (const inner of some) found.push(...(await walk(inner, `${path}/${inner.name}`)));
  }
}
