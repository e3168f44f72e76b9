// renovate.js runs Renovate's own code on main.tf and the lock file in each of several
// folders. It takes Renovate's steps between the clone of a repository and the commit:
// find the dependencies, look up their updates, and update the lock file.
//
// The arguments are pairs of folders: a repository, and the home of the bot that updates it.
// The repository has renovate.json, its configuration. The home has host-rules.json, the host
// rules of the bot. NODE_PATH leads to Renovate. Standard output is a JSON list: for each
// repository, the list of the releases that Renovate has read.

'use strict';

const fs = require('node:fs');
const path = require('node:path');

const { mergeChildConfig } = require('renovate/dist/config');
const { getConfig } = require('renovate/dist/config/defaults');
const { GlobalConfig } = require('renovate/dist/config/global');
const { getPkgReleases } = require('renovate/dist/modules/datasource');
const terraform = require('renovate/dist/modules/manager/terraform');
const packageCache = require('renovate/dist/util/cache/package');
const hostRules = require('renovate/dist/util/host-rules');
const { applyPackageRules } = require('renovate/dist/util/package-rules');
const { fetchUpdates } = require('renovate/dist/workers/repository/process/fetch');
const { flattenUpdates } = require('renovate/dist/workers/repository/updates/flatten');

const packageFile = 'main.tf';

async function update(repository, home) {
  process.chdir(repository);
  const user = JSON.parse(fs.readFileSync('renovate.json', 'utf8'));
  let config = mergeChildConfig(getConfig(), user);
  config = GlobalConfig.set({
    ...config,
    localDir: repository,
    cacheDir: path.join(home, 'renovate'),
    semanticCommits: 'disabled', // Renovate would read the log of a Git repository
  });
  fs.mkdirSync(GlobalConfig.get('cacheDir'), { recursive: true });
  await packageCache.init({ cacheDir: GlobalConfig.get('cacheDir') });
  // The order is Renovate's own: if rules are equally exact, the last one counts.
  hostRules.clear();
  JSON.parse(fs.readFileSync(path.join(home, 'host-rules.json'), 'utf8')).forEach((rule) => hostRules.add(rule));
  (user.hostRules ?? []).forEach((rule) => hostRules.add(rule));

  const content = fs.readFileSync(packageFile, 'utf8');
  const { deps } = await terraform.extractPackageFile(content, packageFile, config);
  deps.forEach((dep) => (dep.packageName ??= dep.depName));
  const found = await getPkgReleases(await applyPackageRules({ ...config, ...deps[0] }));
  if (!found) throw new Error(`Renovate finds no releases for ${packageFile} in ${repository}`);

  const files = { terraform: [{ packageFile, deps }] };
  await fetchUpdates(config, files);
  const updatedDeps = await flattenUpdates(config, files);
  const results = await terraform.updateArtifacts({ packageFileName: packageFile, updatedDeps, newPackageFileContent: content, config });
  for (const { file, artifactError } of results ?? []) {
    if (artifactError) throw new Error(JSON.stringify(artifactError));
    fs.writeFileSync(file.path, file.contents);
  }
  return found.releases.map((release) => release.version);
}

async function main([...folders]) {
  const releases = [];
  while (folders.length > 0) releases.push(await update(...folders.splice(0, 2)));
  console.log(JSON.stringify(releases));
}

main(process.argv.slice(2));
